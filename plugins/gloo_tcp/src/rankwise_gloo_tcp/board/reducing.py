"""Reductions to one or all ranks of one machine, through the board."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rankwise.backends import (
    COMMON,
    PLACES,
    Array,
    Blocks,
    Deadline,
    Fingerprint,
    ReduceOp,
    accumulation_dtype,
    shared_blocks,
)
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import BoardCall, Meet, Trade, flat

#: Up to here everyone reads everything; the sum over all other ranks stays within a processor's cache.
ONE_SHOT_NBYTES = 512 << 10


def carried_dtype(array: Array, op: ReduceOp) -> np.dtype[Any]:
    """Return the dtype in which contributions lie at the board: the arrays' own, unless they are scaled before."""
    if op.factor is not None:
        return accumulation_dtype(op.name, array.dtype)
    native: np.dtype[Any] = array.dtype.newbyteorder("=")
    return native


def one_shot_fits(array: Array, op: ReduceOp, board: Board) -> bool:
    """Tell whether everyone can, and should, reduce the arrays of all ranks for itself."""
    nbytes: int = array.size * carried_dtype(array, op).itemsize
    return nbytes <= board.area_nbytes and nbytes * (board.size - 1) <= ONE_SHOT_NBYTES


def reduce_piece(op: ReduceOp, first: Array, others: Iterable[Array], out: Array, size: int) -> None:
    """Reduce pieces of contributions into another, which may be the first of them."""
    wide = accumulation_dtype(op.name, out.dtype)
    if wide == out.dtype == first.dtype:
        left = first
        for other in others:
            op.merge(left, other, out)
            left = out
        op.average(out, size)
        return
    total = first.astype(wide)
    for other in others:
        op.combine(total, other.astype(wide, copy=False))
    op.finish(total, out, size)


class OneShot(BoardCall):
    """Everyone writes its array, and reduces those of all in the order of ranks."""

    def __init__(self, fingerprint: Fingerprint, board: Board, array: Array, op: ReduceOp, root: int = -1) -> None:
        super().__init__(fingerprint)
        carried = carried_dtype(array, op)
        nbytes = array.size * carried.itemsize
        self.views = [[area[:nbytes].view(carried) for area in areas] for areas in board.areas()]
        self.takes = root in (-1, board.rank)
        self._now: list[Array] = []
        #: Whether contributions are reduced as they lie, two at a time.
        self._is_plain = op.is_plain_on(array.dtype) and op.name != "AVG" and board.size == 2

    def bound(self, board: Board, about: tuple[int, int, int, int, int], given: Any) -> Trade | None:
        if not self._is_plain or not self.takes:
            return None
        array, op = given
        whole, flip, exchange, merge = flat(array), board.flip, board.exchange, op.merge
        places = [(views[board.rank], *views) for views in self.views]

        def trade(sequence: int, deadline: Deadline) -> bool:
            mine, first, second = places[flip()]
            mine[...] = whole
            alike = exchange(sequence, about, deadline)
            if alike:
                merge(first, second, whole)
            return alike

        return trade

    def offer(self, board: Board, given: Any) -> None:
        array, op = given
        self._now = views = self.views[board.flip()]
        if op.factor is not None:
            views[board.rank][...] = op.accumulator(array)
        else:
            views[board.rank][...] = array if array.ndim == 1 else array.reshape(-1)

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        if self.takes:
            array, op = given
            if self._is_plain:
                op.merge(*self._now, array if array.ndim == 1 else array.reshape(-1))
                return
            first, *others = self._now
            reduce_piece(op, first, others, array if array.ndim == 1 else array.reshape(-1), board.size)


class TwoShot(BoardCall):
    """Block by block: each reduces its share of what all have written, and writes the result for those that take it.

    One meeting a block is enough, as the shares of the next block are written while the results of this one are. The
    blocks are small enough to stay in the processors' caches on their way through the board, so that large arrays
    pass through main memory no more often than they must.
    """

    def __init__(self, fingerprint: Fingerprint, board: Board, array: Array, op: ReduceOp, root: int = -1) -> None:
        super().__init__(fingerprint)
        carried = carried_dtype(array, op)
        size, nbytes = board.size, board.slot_nbytes(board.size)
        self.count = nbytes // carried.itemsize
        self.takes, self._for_all = root in (-1, board.rank), root == -1
        #: By parity, writer and slot: each writes its contribution to the share of rank j into its slot j,
        slots = [[[area[nbytes * j :][:nbytes] for j in range(size)] for area in areas] for areas in board.areas()]
        mine = self.count * carried.itemsize
        self.shares = [[[s[:mine].view(carried) for s in row] for row in rows] for rows in slots]
        #: ... and the result of its own share into its own.
        narrow = self.count * array.dtype.itemsize
        self.results = [[row[peer][:narrow].view(array.dtype) for peer, row in enumerate(rows)] for rows in slots]
        self._parity = 0
        self._blocks: Blocks | None = None

    def told(self, about: tuple[int, int, int, int, int]) -> tuple[int, int, int, int, int]:
        return about if self._blocks is None else (*about[:4], self._blocks.word)

    def offer(self, board: Board, given: Any) -> None:
        array, op = given
        self._blocks = shared_blocks(array) if self._for_all and op.is_plain_on(array.dtype) else None
        self._parity = board.flip()
        if self._blocks is None:
            self._write(board, flat(array), op, 0)

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        blocks, self._blocks = self._blocks, None
        every, some = board.told_in_common()
        if some & COMMON and not (every ^ some) & ~PLACES:
            assert blocks is not None  # this rank has told so itself
            self._reduce_in_place(board, [blocks.arrays[place] for place in board.told_places()], given[1])
            meet(deadline)
            return
        if some & COMMON:  # only some have their arrays there
            if blocks is not None:
                self._write(board, flat(given[0]), given[1], 0)
            meet(deadline)
        self._take_by_board(board, meet, deadline, given)

    def _reduce_in_place(self, board: Board, arrays: list[Array], op: ReduceOp) -> None:
        """Reduce this rank's share of each block in all ranks' arrays, which nobody else reads or writes there."""
        own, others = arrays[board.rank], [arrays[(board.rank + k) % board.size] for k in range(1, board.size)]
        for start in range(0, own.size, self.count * board.size):
            share = self._share(own.size, start, board.rank, board.size)
            reduce_piece(op, own[share], [other[share] for other in others], own[share], board.size)
            for other in others:
                other[share] = own[share]

    def _take_by_board(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        array, op = given
        whole, step = flat(array), self.count * board.size
        for start in range(0, whole.size, step):
            parity = self._parity
            self._reduce(board, whole, op, start)
            if start + step < whole.size:
                self._parity = board.flip()
                self._write(board, whole, op, start + step)
            meet(deadline)
            if not self.takes:
                continue
            results = self.results[parity]
            for k in range(1, board.size):
                peer = (board.rank + k) % board.size
                target = whole[self._share(whole.size, start, peer, board.size)]
                target[...] = results[peer][: target.size]

    def _share(self, total: int, start: int, peer: int, size: int) -> slice:
        count = min(self.count * size, total - start)
        return slice(start + count * peer // size, start + count * (peer + 1) // size)

    def _write(self, board: Board, whole: Array, op: ReduceOp, start: int) -> None:
        """Write the contributions to the shares of all others."""
        slots = self.shares[self._parity][board.rank]
        for k in range(1, board.size):
            peer = (board.rank + k) % board.size
            piece = whole[self._share(whole.size, start, peer, board.size)]
            slots[peer][: piece.size] = piece if op.factor is None else op.accumulator(piece)

    def _reduce(self, board: Board, whole: Array, op: ReduceOp, start: int) -> None:
        """Reduce this rank's share and write it; a rank that does not take the outcome keeps its array as it is."""
        mine = whole[self._share(whole.size, start, board.rank, board.size)]
        result = self.results[self._parity][board.rank][: mine.size]
        others = [
            self.shares[self._parity][(board.rank + k) % board.size][board.rank][: mine.size]
            for k in range(1, board.size)
        ]
        out = mine if self.takes else result
        reduce_piece(op, mine if op.factor is None else op.accumulator(mine), others, out, board.size)
        if out is not result:
            result[...] = mine
