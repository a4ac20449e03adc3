"""Collectives that move data among the ranks of one machine, through the board: piece by piece, each rank writes what
the others want, and reads what it wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rankwise.backends import Array, Deadline, Fingerprint
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import Call, Meet, flat

__all__ = ["Combine", "Move", "Route"]


class Route:
    """Which slots of the board one collective uses on this rank.

    Args:
        board: The board.
        dtype: The dtype of all arrays.
        slots: How many slots each area is cut into: one for all readers, or one for each.
        sends: For each array that is sent: its slot and its number of elements.
        takes: For each array that is received: the sender, the slot there, and the number of elements.
    """

    def __init__(
        self,
        board: Board,
        dtype: np.dtype[np.generic],
        slots: int,
        sends: Sequence[tuple[int, int]],
        takes: Sequence[tuple[int, int, int]],
    ) -> None:
        nbytes = board.slot_nbytes(slots)
        self.count = nbytes // dtype.itemsize
        self.longest = max([0, *(count for _, count in sends)])
        limit = self.count * dtype.itemsize

        def view(parity: int, peer: int, slot: int, count: int) -> Array:
            return board.areas[parity][peer][nbytes * slot :][:limit].view(dtype)[:count]

        self.writes = [[view(p, board.rank, slot, count) for slot, count in sends] for p in range(2)]
        self.reads = [[view(p, peer, slot, count) for peer, slot, count in takes] for p in range(2)]


class Move(Call):
    """Copy arrays from rank to rank.

    Args:
        fingerprint: The call.
        route: The slots.
        longest: How many elements any rank sends to another at the most, where every rank knows that; else each tells.
    """

    def __init__(self, fingerprint: Fingerprint, route: Route, longest: int | None = None) -> None:
        super().__init__(fingerprint)
        self.route, self._known = route, longest
        self.longest = route.longest
        self._parity = 0

    def offer(self, board: Board, given: Any) -> None:
        self._parity = board.flip()
        self._write(given[0], 0)

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        sources, targets = given
        for start, parity in self._pieces(board, meet, deadline, sources):
            for view, target in zip(self.route.reads[parity], targets, strict=True):
                left = target.size - start
                if left > 0:
                    piece = flat(target)[start : start + view.size]
                    piece[...] = view[: piece.size]

    def _pieces(
        self, board: Board, meet: Meet, deadline: Deadline, sources: Sequence[Array]
    ) -> Iterator[tuple[int, int]]:
        """Yield where each piece begins and which areas it is in; the next is written meanwhile."""
        count = self.route.count
        longest = board.longest() if self._known is None else self._known
        start = 0
        while True:
            parity = self._parity
            more = start + count < longest
            if more:
                self._parity = board.flip()
                self._write(sources, start + count)
            yield start, parity
            if not more:
                return
            meet(deadline)
            start += count

    def _write(self, sources: Sequence[Array], start: int) -> None:
        for view, source in zip(self.route.writes[self._parity], sources, strict=True):
            piece = flat(source)[start : start + view.size]
            view[: piece.size] = piece


class Combine(Move):
    """Reduce this rank's own array and what comes into another."""

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        sources, own, target, op = given
        own, target = flat(own), flat(target)
        for start, parity in self._pieces(board, meet, deadline, sources):
            reads = self.route.reads[parity]
            if not reads:
                continue
            into = target[start : start + self.route.count]
            op.merge(own[start : start + self.route.count], reads[0][: into.size], into)
            for view in reads[1:]:
                op.merge(into, view[: into.size], into)
            op.average(into, board.size)
