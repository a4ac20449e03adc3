"""Which way each collective goes at the board, prepared once for each kind of call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

from rankwise.arrays import Array
from rankwise.fingerprint import Fingerprint
from rankwise.reduce_op import ReduceOp, accumulation_dtype
from rankwise_gloo_tcp.board import Board
from rankwise_gloo_tcp.call import Barrier, Call, Errand
from rankwise_gloo_tcp.moving import Combine, Move, Route
from rankwise_gloo_tcp.reducing import OneShot, TwoShot, one_shot_fits

__all__ = ["Prepared"]

#: How many kinds of calls are kept. A program has few; one with ever new sizes must not fill the memory.
_KEPT = 512


class Prepared:
    """The calls of one group.

    Each method returns what is to be done with just these arrays, or None where they do not fit through the board.
    What a rank has for itself stays with the caller.
    """

    def __init__(self, board: Board) -> None:
        self._board, self._rank, self._size = board, board.rank, board.size
        self._others = [(board.rank + k) % board.size for k in range(1, board.size)]
        self._calls: dict[Hashable, Call] = {}
        self.barrier = Errand(Barrier(Fingerprint("barrier")), None)

    def broadcast(self, array: Array, root: int) -> Errand | None:
        """Prepare a broadcast."""
        if not self._fits(array, 1):
            return None

        def make() -> Call:
            sends = [(0, array.size)] if self._rank == root else []
            takes = [] if self._rank == root else [(root, 0, array.size)]
            route = Route(self._board, array.dtype, 1, sends, takes)
            return Move(Fingerprint.of("broadcast", array, root=root), route, array.size)

        call = self._find(("broadcast", root, array.dtype, array.shape), make)
        return Errand(call, ([array], []) if self._rank == root else ([], [array]))

    def all_reduce(self, array: Array, op: ReduceOp) -> Errand | None:
        """Prepare an all_reduce."""
        if not self._fits(array, self._size, op):
            return None

        def make() -> Call:
            kind = OneShot if one_shot_fits(array, op, self._board) else TwoShot
            return kind(Fingerprint.of("all_reduce", array, op), self._board, array, op)

        return Errand(self._find(("all_reduce", op.name, array.dtype, array.shape), make), (array, op))

    def reduce(self, array: Array, op: ReduceOp, root: int) -> Errand | None:
        """Prepare a reduce."""
        key = ("reduce", op.name, root, array.dtype, array.shape)
        call = partial(Fingerprint.of, "reduce", array, op, root)
        if one_shot_fits(array, op, self._board):
            return Errand(self._find(key, lambda: OneShot(call(), self._board, array, op, root)), (array, op))
        if not (self._fits(array, 1) and _plain(array, op)):
            return None

        def make() -> Call:
            sends = [] if self._rank == root else [(0, array.size)]
            takes = [(peer, 0, array.size) for peer in self._others] if self._rank == root else []
            return Combine(call(), Route(self._board, array.dtype, 1, sends, takes), array.size)

        return Errand(self._find(key, make), ([] if self._rank == root else [array], array, array, op))

    def all_gather(self, parts: Sequence[Array], array: Array) -> Errand | None:
        """Prepare an all_gather."""
        if not self._fits(array, 1):
            return None
        sizes = _sizes(parts)

        def make() -> Call:
            takes = [(peer, 0, sizes[peer]) for peer in self._others]
            route = Route(self._board, array.dtype, 1, [(0, array.size)], takes)
            return Move(Fingerprint.of("all_gather", array, parts=parts), route, max(sizes))

        return Errand(self._find(("all_gather", array.dtype, sizes), make), ([array], self._of_others(parts)))

    def gather(self, parts: Sequence[Array] | None, array: Array, root: int) -> Errand | None:
        """Prepare a gather."""
        if not self._fits(array, 1):
            return None
        sizes = _sizes(parts or ())

        def make() -> Call:
            sends = [] if self._rank == root else [(0, array.size)]
            takes = [(peer, 0, sizes[peer]) for peer in self._others] if sizes else []
            call = Fingerprint.of("gather", array, root=root, sent={root: array}, received=parts)
            return Move(call, Route(self._board, array.dtype, 1, sends, takes))

        call = self._find(("gather", root, array.dtype, array.size, sizes), make)
        return Errand(call, ([] if self._rank == root else [array], self._of_others(parts)))

    def scatter(self, array: Array, parts: Sequence[Array] | None, root: int) -> Errand | None:
        """Prepare a scatter."""
        if not self._fits(array, self._size):
            return None
        sizes = _sizes(parts or ())

        def make() -> Call:
            sends = [(peer, sizes[peer]) for peer in self._others] if sizes else []
            takes = [] if self._rank == root else [(root, self._rank, array.size)]
            call = Fingerprint.of("scatter", array, root=root, sent=parts, received={root: array})
            return Move(call, Route(self._board, array.dtype, self._size, sends, takes))

        call = self._find(("scatter", root, array.dtype, array.size, sizes), make)
        return Errand(call, (self._of_others(parts), [] if self._rank == root else [array]))

    def reduce_scatter(self, array: Array, parts: Sequence[Array], op: ReduceOp) -> Errand | None:
        """Prepare a reduce_scatter."""
        if not (self._fits(array, self._size) and _plain(array, op)):
            return None
        sizes = _sizes(parts)

        def make() -> Call:
            sends = [(peer, sizes[peer]) for peer in self._others]
            takes = [(peer, self._rank, array.size) for peer in self._others]
            route = Route(self._board, array.dtype, self._size, sends, takes)
            return Combine(Fingerprint.of("reduce_scatter", array, op, parts=parts), route, max(sizes))

        call = self._find(("reduce_scatter", op.name, array.dtype, sizes), make)
        return Errand(call, (self._of_others(parts), parts[self._rank], array, op))

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array]) -> Errand | None:
        """Prepare an all_to_all."""
        mine = ins[self._rank]
        if not self._fits(mine, self._size):
            return None
        sent, received = _sizes(ins), _sizes(outs)

        def make() -> Call:
            sends = [(peer, sent[peer]) for peer in self._others]
            takes = [(peer, self._rank, received[peer]) for peer in self._others]
            call = Fingerprint.of("all_to_all", mine, sent=ins, received=outs)
            return Move(call, Route(self._board, mine.dtype, self._size, sends, takes))

        call = self._find(("all_to_all", mine.dtype, sent, received), make)
        return Errand(call, (self._of_others(ins), self._of_others(outs)))

    def _find(self, key: Hashable, make: Callable[[], Call]) -> Call:
        call = self._calls.get(key)
        if call is None:
            if len(self._calls) >= _KEPT:
                self._calls.clear()
            call = self._calls[key] = make()
        return call

    def _fits(self, array: Array, slots: int, op: ReduceOp | None = None) -> bool:
        """Tell whether a slot has room for an element, in the dtype that it is reduced in."""
        dtype = array.dtype if op is None else accumulation_dtype(op.name, array.dtype)
        return 0 < dtype.itemsize <= self._board.slot_nbytes(slots)

    def _of_others(self, arrays: Sequence[Array] | None) -> list[Array]:
        return [] if arrays is None else [arrays[peer] for peer in self._others]


def _sizes(arrays: Sequence[Array]) -> tuple[int, ...]:
    return tuple([array.size for array in arrays])


def _plain(array: Array, op: ReduceOp) -> bool:
    """Tell whether elements are reduced as they are: neither in a wider dtype nor after a multiplication."""
    return op.factor is None and accumulation_dtype(op.name, array.dtype) == array.dtype
