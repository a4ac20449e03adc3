"""Which way each collective goes at the board, prepared once for each kind of call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from rankwise.backends import Array, Call, Fingerprint, ReduceOp, accumulation_dtype
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import Barrier, BoardCall, Errand
from rankwise_gloo_tcp.board.moving import Combine, Move, Route
from rankwise_gloo_tcp.board.reducing import OneShot, TwoShot, one_shot_fits

__all__ = ["PREPARE", "Prepared"]

#: How many kinds of calls are kept. A program has few; one with ever new sizes must not fill the memory.
_KEPT = 512


class Prepared:
    """The calls of one group."""

    def __init__(self, board: Board) -> None:
        self._board, self._rank, self._size = board, board.rank, board.size
        self._others = [(board.rank + k) % board.size for k in range(1, board.size)]
        #: By what they are about.
        self.calls: dict[Hashable, BoardCall] = {}
        self.barrier = Errand(Barrier(Fingerprint("barrier")), None)

    def prepare(self, call: Call) -> Errand | None:
        """Return what is to be done with just the arrays of a call, or None where they do not fit through the board."""
        prepare = PREPARE.get(call.op)
        return None if prepare is None else prepare(self, call)

    def _barrier(self, call: Call) -> Errand:
        return self.barrier

    def _broadcast(self, call: Call) -> Errand | None:
        array, root = call.array, call.root
        key = ("broadcast", root, array.dtype, array.shape)
        found = self.calls.get(key)
        if found is None:
            if not self._fits(array, 1):
                return None
            sends = [(0, array.size)] if self._rank == root else []
            takes = [] if self._rank == root else [(root, 0, array.size)]
            route = Route(self._board, array.dtype, 1, sends, takes, self._board.fetch_nbytes)
            found = self._keep(key, Move(call.fingerprint, route, [array.size]))
        return Errand(found, ([array], []) if self._rank == root else ([], [array]))

    def _all_reduce(self, call: Call) -> Errand | None:
        array, op = call.array, call.reduce_op
        assert op is not None
        key = ("all_reduce", op.name, array.dtype, array.shape)
        found = self.calls.get(key)
        if found is None:
            if not self._fits(array, self._size, op):
                return None
            kind = OneShot if one_shot_fits(array, op, self._board) else TwoShot
            found = self._keep(key, kind(call.fingerprint, self._board, array, op))
        return Errand(found, (array, op))

    def _reduce(self, call: Call) -> Errand | None:
        array, op, root = call.array, call.reduce_op, call.root
        assert op is not None
        key = ("reduce", op.name, root, array.dtype, array.shape)
        found = self.calls.get(key)
        if one_shot_fits(array, op, self._board):
            if found is None:
                found = self._keep(key, OneShot(call.fingerprint, self._board, array, op, root))
            return Errand(found, (array, op))
        if not (self._fits(array, 1) and op.is_plain_on(array.dtype)):
            return None
        if found is None:
            sends = [] if self._rank == root else [(0, array.size)]
            takes = [(peer, 0, array.size) for peer in self._others] if self._rank == root else []
            route = Route(self._board, array.dtype, 1, sends, takes)
            found = self._keep(key, Combine(call.fingerprint, route, [array.size]))
        return Errand(found, ([] if self._rank == root else [array], array, array, op))

    def _all_gather(self, call: Call) -> Errand | None:
        array, parts = call.array, call.outs or ()
        sizes = _sizes(parts)
        key = ("all_gather", array.dtype, sizes)
        found = self.calls.get(key)
        if found is None:
            if not self._fits(array, 1):
                return None
            takes = [(peer, 0, sizes[peer]) for peer in self._others]
            route = Route(self._board, array.dtype, 1, [(0, array.size)], takes, self._board.fetch_nbytes)
            found = self._keep(key, Move(call.fingerprint, route, sizes))
        return Errand(found, ([array], self._of_others(parts)), ((parts[self._rank], array),))

    def _gather(self, call: Call) -> Errand | None:
        array, parts, root = call.array, call.outs, call.root
        sizes = _sizes(parts or ())
        key = ("gather", root, array.dtype, array.size, sizes)
        found = self.calls.get(key)
        if found is None:
            if not self._fits(array, 1):
                return None
            sends = [] if self._rank == root else [(0, array.size)]
            takes = [(peer, 0, sizes[peer]) for peer in self._others] if sizes else []
            found = self._keep(key, Move(call.fingerprint, Route(self._board, array.dtype, 1, sends, takes)))
        kept = () if parts is None else ((parts[root], array),)
        return Errand(found, ([] if self._rank == root else [array], self._of_others(parts)), kept)

    def _scatter(self, call: Call) -> Errand | None:
        array, parts, root = call.array, call.ins, call.root
        sizes = _sizes(parts or ())
        key = ("scatter", root, array.dtype, array.size, sizes)
        found = self.calls.get(key)
        if found is None:
            if not self._fits(array, self._size):
                return None
            sends = [(peer, sizes[peer]) for peer in self._others] if sizes else []
            takes = [] if self._rank == root else [(root, self._rank, array.size)]
            found = self._keep(key, Move(call.fingerprint, Route(self._board, array.dtype, self._size, sends, takes)))
        kept = () if parts is None else ((array, parts[root]),)
        return Errand(found, (self._of_others(parts), [] if self._rank == root else [array]), kept)

    def _reduce_scatter(self, call: Call) -> Errand | None:
        array, op, parts = call.array, call.reduce_op, call.ins or ()
        assert op is not None
        sizes = _sizes(parts)
        key = ("reduce_scatter", op.name, array.dtype, sizes)
        found = self.calls.get(key)
        if found is None:
            if not (self._fits(array, self._size) and op.is_plain_on(array.dtype)):
                return None
            sends = [(peer, sizes[peer]) for peer in self._others]
            takes = [(peer, self._rank, array.size) for peer in self._others]
            route = Route(self._board, array.dtype, self._size, sends, takes)
            found = self._keep(key, Combine(call.fingerprint, route, sizes))
        return Errand(found, (self._of_others(parts), parts[self._rank], array, op))

    def _all_to_all(self, call: Call) -> Errand | None:
        ins, outs = call.ins or (), call.outs or ()
        mine, sent, received = ins[self._rank], _sizes(ins), _sizes(outs)
        key = ("all_to_all", mine.dtype, sent, received)
        found = self.calls.get(key)
        if found is None:
            if not self._fits(mine, self._size):
                return None
            sends = [(peer, sent[peer]) for peer in self._others]
            takes = [(peer, self._rank, received[peer]) for peer in self._others]
            route = Route(self._board, mine.dtype, self._size, sends, takes, self._board.fetch_nbytes)
            found = self._keep(key, Move(call.fingerprint, route))
        return Errand(found, (self._of_others(ins), self._of_others(outs)), ((outs[self._rank], mine),))

    def _keep(self, key: Hashable, call: BoardCall) -> BoardCall:
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


#: What prepares each operation; one that is not here goes by messages.
PREPARE: dict[str, Callable[[Prepared, Call], Errand | None]] = {
    "broadcast": Prepared._broadcast,
    "all_reduce": Prepared._all_reduce,
    "reduce": Prepared._reduce,
    "all_gather": Prepared._all_gather,
    "gather": Prepared._gather,
    "scatter": Prepared._scatter,
    "reduce_scatter": Prepared._reduce_scatter,
    "all_to_all": Prepared._all_to_all,
    "barrier": Prepared._barrier,
}


def _sizes(arrays: Sequence[Array]) -> tuple[int, ...]:
    return tuple([array.size for array in arrays])
