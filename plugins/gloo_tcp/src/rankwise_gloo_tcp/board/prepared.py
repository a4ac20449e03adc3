"""Which way each collective goes at the board, prepared once for each kind of call."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rankwise.backends import Array, Fingerprint, ReduceOp, accumulation_dtype
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import Barrier, Call, Errand
from rankwise_gloo_tcp.board.moving import Combine, Move, Route
from rankwise_gloo_tcp.board.reducing import OneShot, TwoShot, one_shot_fits

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
        #: By what they are about.
        self.calls: dict[Hashable, Call] = {}
        self.barrier = Errand(Barrier(Fingerprint("barrier")), None)

    def broadcast(self, array: Array, root: int) -> Errand | None:
        """Prepare a broadcast."""
        key = ("broadcast", root, array.dtype, array.shape)
        call = self.calls.get(key)
        if call is None:
            if not self._fits(array, 1):
                return None
            sends = [(0, array.size)] if self._rank == root else []
            takes = [] if self._rank == root else [(root, 0, array.size)]
            route = Route(self._board, array.dtype, 1, sends, takes, self._board.fetch_nbytes)
            call = self._keep(key, Move(Fingerprint.of("broadcast", array, root=root), route, [array.size]))
        return Errand(call, ([array], []) if self._rank == root else ([], [array]))

    def all_reduce(self, array: Array, op: ReduceOp) -> Errand | None:
        """Prepare an all_reduce."""
        key = ("all_reduce", op.name, array.dtype, array.shape)
        call = self.calls.get(key)
        if call is None:
            if not self._fits(array, self._size, op):
                return None
            kind = OneShot if one_shot_fits(array, op, self._board) else TwoShot
            call = self._keep(key, kind(Fingerprint.of("all_reduce", array, op), self._board, array, op))
        return Errand(call, (array, op))

    def reduce(self, array: Array, op: ReduceOp, root: int) -> Errand | None:
        """Prepare a reduce."""
        key = ("reduce", op.name, root, array.dtype, array.shape)
        call = self.calls.get(key)
        if one_shot_fits(array, op, self._board):
            if call is None:
                told = Fingerprint.of("reduce", array, op, root)
                call = self._keep(key, OneShot(told, self._board, array, op, root))
            return Errand(call, (array, op))
        if not (self._fits(array, 1) and _plain(array, op)):
            return None
        if call is None:
            sends = [] if self._rank == root else [(0, array.size)]
            takes = [(peer, 0, array.size) for peer in self._others] if self._rank == root else []
            route = Route(self._board, array.dtype, 1, sends, takes)
            call = self._keep(key, Combine(Fingerprint.of("reduce", array, op, root), route, [array.size]))
        return Errand(call, ([] if self._rank == root else [array], array, array, op))

    def all_gather(self, parts: Sequence[Array], array: Array) -> Errand | None:
        """Prepare an all_gather."""
        sizes = _sizes(parts)
        key = ("all_gather", array.dtype, sizes)
        call = self.calls.get(key)
        if call is None:
            if not self._fits(array, 1):
                return None
            takes = [(peer, 0, sizes[peer]) for peer in self._others]
            route = Route(self._board, array.dtype, 1, [(0, array.size)], takes, self._board.fetch_nbytes)
            call = self._keep(key, Move(Fingerprint.of("all_gather", array, parts=parts), route, sizes))
        return Errand(call, ([array], self._of_others(parts)))

    def gather(self, parts: Sequence[Array] | None, array: Array, root: int) -> Errand | None:
        """Prepare a gather."""
        sizes = _sizes(parts or ())
        key = ("gather", root, array.dtype, array.size, sizes)
        call = self.calls.get(key)
        if call is None:
            if not self._fits(array, 1):
                return None
            sends = [] if self._rank == root else [(0, array.size)]
            takes = [(peer, 0, sizes[peer]) for peer in self._others] if sizes else []
            told = Fingerprint.of("gather", array, root=root, sent={root: array}, received=parts)
            call = self._keep(key, Move(told, Route(self._board, array.dtype, 1, sends, takes)))
        return Errand(call, ([] if self._rank == root else [array], self._of_others(parts)))

    def scatter(self, array: Array, parts: Sequence[Array] | None, root: int) -> Errand | None:
        """Prepare a scatter."""
        sizes = _sizes(parts or ())
        key = ("scatter", root, array.dtype, array.size, sizes)
        call = self.calls.get(key)
        if call is None:
            if not self._fits(array, self._size):
                return None
            sends = [(peer, sizes[peer]) for peer in self._others] if sizes else []
            takes = [] if self._rank == root else [(root, self._rank, array.size)]
            told = Fingerprint.of("scatter", array, root=root, sent=parts, received={root: array})
            call = self._keep(key, Move(told, Route(self._board, array.dtype, self._size, sends, takes)))
        return Errand(call, (self._of_others(parts), [] if self._rank == root else [array]))

    def reduce_scatter(self, array: Array, parts: Sequence[Array], op: ReduceOp) -> Errand | None:
        """Prepare a reduce_scatter."""
        sizes = _sizes(parts)
        key = ("reduce_scatter", op.name, array.dtype, sizes)
        call = self.calls.get(key)
        if call is None:
            if not (self._fits(array, self._size) and _plain(array, op)):
                return None
            sends = [(peer, sizes[peer]) for peer in self._others]
            takes = [(peer, self._rank, array.size) for peer in self._others]
            route = Route(self._board, array.dtype, self._size, sends, takes)
            call = self._keep(key, Combine(Fingerprint.of("reduce_scatter", array, op, parts=parts), route, sizes))
        return Errand(call, (self._of_others(parts), parts[self._rank], array, op))

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array]) -> Errand | None:
        """Prepare an all_to_all."""
        mine, sent, received = ins[self._rank], _sizes(ins), _sizes(outs)
        key = ("all_to_all", mine.dtype, sent, received)
        call = self.calls.get(key)
        if call is None:
            if not self._fits(mine, self._size):
                return None
            sends = [(peer, sent[peer]) for peer in self._others]
            takes = [(peer, self._rank, received[peer]) for peer in self._others]
            told = Fingerprint.of("all_to_all", mine, sent=ins, received=outs)
            route = Route(self._board, mine.dtype, self._size, sends, takes, self._board.fetch_nbytes)
            call = self._keep(key, Move(told, route))
        return Errand(call, (self._of_others(ins), self._of_others(outs)))

    def _keep(self, key: Hashable, call: Call) -> Call:
        if len(self.calls) >= _KEPT:
            self.calls.clear()
        self.calls[key] = call
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
