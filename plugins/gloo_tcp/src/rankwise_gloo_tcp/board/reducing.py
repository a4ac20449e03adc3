"""Reductions to all ranks of one machine, through the board."""

from __future__ import annotations

from typing import Any

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
from rankwise_gloo_tcp.board.call import BoardCall, Meet, flat

__all__ = ["ONE_SHOT_NBYTES", "OneShot", "TwoShot", "one_shot_fits"]

#: Up to here everyone reads everything; the sum over all other ranks stays within a processor's cache.
ONE_SHOT_NBYTES = 512 << 10


def one_shot_fits(array: Array, op: ReduceOp, board: Board) -> bool:
    """Tell whether everyone can, and should, reduce the arrays of all ranks for itself."""
    nbytes: int = array.size * accumulation_dtype(op.name, array.dtype).itemsize
    return nbytes <= board.area_nbytes and nbytes * (board.size - 1) <= ONE_SHOT_NBYTES


class OneShot(BoardCall):
    """Everyone writes its array, and reduces those of all in the order of ranks."""

    def __init__(self, fingerprint: Fingerprint, board: Board, array: Array, op: ReduceOp, root: int = -1) -> None:
        super().__init__(fingerprint)
        wide = accumulation_dtype(op.name, array.dtype)
        nbytes = array.size * wide.itemsize
        self.views = [[area[:nbytes].view(wide) for area in areas] for areas in board.areas()]
        self.plain = wide == array.dtype and op.base is op
        self.root = root
        self._now: list[Array] = []

    def offer(self, board: Board, given: Any) -> None:
        array, op = given
        self._now = views = self.views[board.flip()]
        if op.factor is not None:
            views[board.rank][...] = op.accumulator(array)
        else:
            views[board.rank][...] = array if array.ndim == 1 else array.reshape(-1)

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        array, op = given
        if self.root not in (-1, board.rank):
            return
        views = self._now
        if self.plain:
            total = array if array.ndim == 1 else array.reshape(-1)
            op.merge(views[0], views[1], total)
            for view in views[2:]:
                op.merge(total, view, total)
            return
        total = views[0].copy()
        for peer in range(1, board.size):
            op.combine(total, views[peer])
        op.finish(total, array, board.size)


class TwoShot(BoardCall):
    """Block by block: each reduces its share of what all have written, and writes the result for all to read.

    One meeting a block is enough, as the shares of the next block are written while the results of this one are. The
    blocks are small enough to stay in the processors' caches on their way through the board, so that large arrays
    pass through main memory no more often than they must.
    """

    def __init__(self, fingerprint: Fingerprint, board: Board, array: Array, op: ReduceOp) -> None:
        super().__init__(fingerprint)
        self.wide = wide = accumulation_dtype(op.name, array.dtype)
        size, nbytes = board.size, board.slot_nbytes(board.size)
        self.count = nbytes // wide.itemsize
        #: By parity, writer and slot: each writes its contribution to the share of rank j into its slot j,
        slots = [[[area[nbytes * j :][:nbytes] for j in range(size)] for area in areas] for areas in board.areas()]
        self.shares = [[[s[: self.count * wide.itemsize].view(wide) for s in row] for row in rows] for rows in slots]
        #: ... and the result of its own share, narrow again, into its own.
        narrow = self.count * array.dtype.itemsize
        self.results = [[row[peer][:narrow].view(array.dtype) for peer, row in enumerate(rows)] for rows in slots]
        self._parity = 0
        self._blocks: Blocks | None = None

    def told(self, about: tuple[int, int, int, int, int]) -> tuple[int, int, int, int, int]:
        return about if self._blocks is None else (*about[:4], self._blocks.word)

    def offer(self, board: Board, given: Any) -> None:
        array, op = given
        plain = self.wide == array.dtype and op.factor is None
        self._blocks = shared_blocks(array) if plain else None
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
            mine = own[share]
            for other in others:
                op.combine(mine, other[share])
            op.average(mine, board.size)
            for other in others:
                other[share] = mine

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
        """Reduce this rank's share, in the array itself, and write it for the others."""
        mine = whole[self._share(whole.size, start, board.rank, board.size)]
        plain = self.wide == whole.dtype and op.factor is None
        total = mine if plain else op.accumulator(mine)
        for k in range(1, board.size):
            op.combine(total, self.shares[self._parity][(board.rank + k) % board.size][board.rank][: mine.size])
        if plain:
            op.average(mine, board.size)
        else:
            op.finish(total, mine, board.size)
        self.results[self._parity][board.rank][: mine.size] = mine
