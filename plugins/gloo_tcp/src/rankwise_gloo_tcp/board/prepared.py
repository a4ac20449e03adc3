"""Which way each collective goes at the board, prepared once for each kind of call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rankwise.backends import Array, Call
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import Barrier, BoardCall
from rankwise_gloo_tcp.board.moving import Combine, Move, Route, ToAll
from rankwise_gloo_tcp.board.reducing import OneShot, TwoShot, carried_dtype, one_shot_fits

#: What this rank has for itself: where to, and where from.
Kept: TypeAlias = tuple[Array, Array]


class Kind(NamedTuple):
    """One kind of call at the board.

    Attributes:
        prepared: What does it.
        given: Returns of a call what `prepared` takes.
        kept: Returns of a call what this rank copies for itself in the end.
    """

    prepared: BoardCall
    given: Callable[[Call], Any]
    kept: Callable[[Call], Kept] | None = None


class BoardKinds:
    """The kinds of calls at one board."""

    __slots__ = ("_board", "_others", "_rank", "_size")

    def __init__(self, board: Board) -> None:
        self._board, self._rank, self._size = board, board.rank, board.size
        self._others = [(board.rank + k) % board.size for k in range(1, board.size)]

    def prepare(self, call: Call) -> Kind | None:
        """Return what does calls of this kind, or None where they do not fit through the board."""
        prepare = PREPARE.get(call.op)
        return None if prepare is None else prepare(self, call)

    def _barrier(self, call: Call) -> Kind:
        return Kind(Barrier(call.fingerprint), _nothing)

    def _broadcast(self, call: Call) -> Kind | None:
        array, root = call.array, call.root
        if not self._fits(array.dtype, 1):
            return None
        sends = [(0, array.size)] if self._rank == root else []
        takes = [] if self._rank == root else [(root, 0, array.size)]
        route = self._route(array.dtype, 1, sends, takes, at_once=self._size - 1)
        given = _to_others if self._rank == root else _from_root
        return Kind(ToAll(call.fingerprint, route, [array.size]), given)

    def _reduce(self, call: Call) -> Kind | None:
        array, op = call.array, call.reduce_op
        assert op is not None
        if not self._fits(carried_dtype(array, op), self._size):
            return None
        kind = OneShot if one_shot_fits(array, op, self._board) else TwoShot
        root = call.root if call.op == "reduce" else -1
        return Kind(kind(call.fingerprint, self._board, array, op, root), _array_and_op)

    def _all_gather(self, call: Call) -> Kind | None:
        array, sizes = call.array, _sizes(call.outs)
        if not self._fits(array.dtype, 1):
            return None
        takes = [(peer, 0, sizes[peer]) for peer in self._others]
        route = self._route(array.dtype, 1, [(0, array.size)], takes)
        return Kind(ToAll(call.fingerprint, route, sizes), self._mine_for_theirs, self._own_out)

    def _gather(self, call: Call) -> Kind | None:
        array, root, sizes = call.array, call.root, _sizes(call.outs)
        if not self._fits(array.dtype, 1):
            return None
        at_root = self._rank == root
        sends = [] if at_root else [(0, array.size)]
        takes = [(peer, 0, sizes[peer]) for peer in self._others] if sizes else []
        move = Move(call.fingerprint, self._route(array.dtype, 1, sends, takes))
        return Kind(move, self._theirs, self._own_out) if at_root else Kind(move, _to_others)

    def _scatter(self, call: Call) -> Kind | None:
        array, root, sizes = call.array, call.root, _sizes(call.ins)
        if not self._fits(array.dtype, self._size):
            return None
        at_root = self._rank == root
        sends = [(peer, sizes[peer]) for peer in self._others] if sizes else []
        takes = [] if at_root else [(root, self._rank, array.size)]
        move = Move(call.fingerprint, self._route(array.dtype, self._size, sends, takes))
        return Kind(move, self._for_theirs, self._own_in) if at_root else Kind(move, _from_root)

    def _reduce_scatter(self, call: Call) -> Kind | None:
        array, op, sizes = call.array, call.reduce_op, _sizes(call.ins)
        assert op is not None
        if not self._fits(array.dtype, self._size) or op.factor is not None or not array.dtype.isnative:
            return None
        sends = [(peer, sizes[peer]) for peer in self._others]
        takes = [(peer, self._rank, array.size) for peer in self._others]
        route = Route(self._board, array.dtype, self._size, sends, takes)
        return Kind(Combine(call.fingerprint, route, sizes), self._parts_and_op)

    def _all_to_all(self, call: Call) -> Kind | None:
        sent, received, dtype = _sizes(call.ins), _sizes(call.outs), call.array.dtype
        if not self._fits(dtype, self._size):
            return None
        sends = [(peer, sent[peer]) for peer in self._others]
        takes = [(peer, self._rank, received[peer]) for peer in self._others]
        route = self._route(dtype, self._size, sends, takes)
        return Kind(Move(call.fingerprint, route), self._theirs_for_theirs, self._own_out)

    def _route(
        self,
        dtype: np.dtype[Any],
        slots: int,
        sends: Sequence[tuple[int, int]],
        takes: Sequence[tuple[int, int, int]],
        at_once: int = 0,
    ) -> Route:
        return Route(self._board, dtype, slots, sends, takes, self._board.fetch_nbytes(at_once))

    def _fits(self, dtype: np.dtype[Any], slots: int) -> bool:
        """Tell whether a slot has room for an element."""
        return 0 < dtype.itemsize <= self._board.slot_nbytes(slots)

    # ------------------------------------------------------------------ what is given, and kept

    def _of_others(self, arrays: Sequence[Array] | None) -> list[Array]:
        return [] if arrays is None else [arrays[peer] for peer in self._others]

    def _mine_for_theirs(self, call: Call) -> Any:
        return [call.array], self._of_others(call.outs), call.outs, self._own_out(call)

    def _theirs(self, call: Call) -> Any:
        return [], self._of_others(call.outs)

    def _for_theirs(self, call: Call) -> Any:
        return self._of_others(call.ins), []

    def _theirs_for_theirs(self, call: Call) -> Any:
        return self._of_others(call.ins), self._of_others(call.outs)

    def _parts_and_op(self, call: Call) -> Any:
        parts = call.ins or ()
        return self._of_others(parts), parts[self._rank], call.array, call.reduce_op

    def _own_out(self, call: Call) -> Kept:
        return (call.outs or ())[self._rank], call.array

    def _own_in(self, call: Call) -> Kept:
        return call.array, (call.ins or ())[self._rank]


#: What prepares each operation; one that is not here goes by messages.
PREPARE: dict[str, Callable[[BoardKinds, Call], Kind | None]] = {
    "broadcast": BoardKinds._broadcast,
    "all_reduce": BoardKinds._reduce,
    "reduce": BoardKinds._reduce,
    "all_gather": BoardKinds._all_gather,
    "gather": BoardKinds._gather,
    "scatter": BoardKinds._scatter,
    "reduce_scatter": BoardKinds._reduce_scatter,
    "all_to_all": BoardKinds._all_to_all,
    "barrier": BoardKinds._barrier,
}


def _nothing(call: Call) -> None:
    """Give a barrier nothing."""


def _array_and_op(call: Call) -> Any:
    return call.array, call.reduce_op


def _to_others(call: Call) -> Any:
    return [call.array], []


def _from_root(call: Call) -> Any:
    return [], [call.array]


def _sizes(arrays: Sequence[Array] | None) -> tuple[int, ...]:
    return tuple([array.size for array in arrays or ()])
