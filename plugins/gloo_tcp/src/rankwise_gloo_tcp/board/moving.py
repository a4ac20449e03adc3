"""Collectives that move data among the ranks of one machine, through the board: piece by piece, each rank writes what
the others want, and reads what it wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rankwise.backends import COMMON, IN_PLACE, Array, Deadline, Fingerprint, shared_word
from rankwise_gloo_tcp.board.board import FETCHES, SHARED, Board
from rankwise_gloo_tcp.board.call import BoardCall, Meet, flat
from rankwise_gloo_tcp.board.reducing import reduce_piece

_NEVER = 1 << 62
#: What comes before the longest part in what is told.
_NOTHING_ELSE = (0,) * SHARED["LONGEST"]


class Route:
    """Which slots of the board one collective uses on this rank.

    A part that is long is not cut into pieces: the slot holds its address, and the receiver copies it from there. Both
    ends of a part know its length, and so whether that is so.

    Args:
        board: The board.
        dtype: The dtype of all arrays.
        slots: How many slots each area is cut into: one for all readers, or one for each.
        sends: For each array that is sent: its slot and its number of elements.
        takes: For each array that is received: the sender, the slot there, and the number of elements.
        fetch_nbytes: From which length on parts are long; 0 for never.
    """

    def __init__(
        self,
        board: Board,
        dtype: np.dtype[np.generic],
        slots: int,
        sends: Sequence[tuple[int, int]],
        takes: Sequence[tuple[int, int, int]],
        fetch_nbytes: int = 0,
    ) -> None:
        nbytes = board.slot_nbytes(slots)
        self._made = board, dtype, slots, sends, takes
        self.count = nbytes // dtype.itemsize
        #: From how many elements on parts are long.
        self.fetch_count = -(-fetch_nbytes // dtype.itemsize) if fetch_nbytes else _NEVER
        self.peers = [peer for peer, _, _ in takes]
        self.counts = [*(count for _, count in sends), *(count for _, _, count in takes)]
        self.told = self.longest(self.counts)
        limit, areas = self.count * dtype.itemsize, board.areas()

        def view(parity: int, peer: int, slot: int, count: int) -> Array:
            place = areas[parity][peer][nbytes * slot :]
            return place[:8].view(np.uint64) if count >= self.fetch_count else place[:limit].view(dtype)[:count]

        self.writes = [[view(p, board.rank, slot, count) for slot, count in sends] for p in range(2)]
        self.reads = [[view(p, peer, slot, count) for peer, slot, count in takes] for p in range(2)]

    def longest(self, counts: Sequence[int]) -> int:
        """Return the longest of some parts that are cut into pieces, and `FETCHES` besides if any are not."""
        fetches = FETCHES if max(counts, default=0) >= self.fetch_count else 0
        return fetches | max([0, *(count for count in counts if count < self.fetch_count)])

    def through_slots(self) -> Route:
        """Return the same for parts that are not copied from their owners' memory, however long."""
        return Route(*self._made)


class Move(BoardCall):
    """Copy arrays from rank to rank.

    Args:
        fingerprint: The call.
        route: The slots.
        counts: How many elements each rank sends to another, where every rank knows that; else each tells.
    """

    def __init__(self, fingerprint: Fingerprint, route: Route, counts: Sequence[int] | None = None) -> None:
        super().__init__(fingerprint)
        self.route = route
        self._known = None if counts is None else route.longest(counts)
        self.longest = route.told if self._known is None else self._known
        self._parity = 0

    def offer(self, board: Board, given: Any) -> None:
        self._parity = board.flip()
        self._write(self.route, given[0], 0)

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        route, targets = self.route, given[1]
        longest = board.longest() if self._known is None else self._known
        long = [target.size >= route.fetch_count for target in targets]
        # Before the place is written to again.
        addresses = [int(view[0]) if apart else 0 for view, apart in zip(route.reads[self._parity], long, strict=True)]
        self._take_pieces(route, board, meet, deadline, given, longest & ~FETCHES)
        if not longest & FETCHES:
            return
        readable = [
            not apart or board.fetch(peer, address, target)
            for peer, address, target, apart in zip(route.peers, addresses, targets, long, strict=True)
        ]
        # Now nobody reads this rank's arrays any more; here, too, it is heard that a peer has died. A rank that could
        # not read some memory, such as that of a device's driver, tells so.
        meet(deadline, *_NOTHING_ELSE, max(route.counts, default=0) | (0 if all(readable) else FETCHES))
        told = board.longest()
        if told & FETCHES:
            longest = told & ~FETCHES if self._known is None else max(route.counts)
            self._take_through_slots(board, meet, deadline, given, longest)

    def _take_through_slots(self, board: Board, meet: Meet, deadline: Deadline, given: Any, longest: int) -> None:
        route = self.route.through_slots()
        self._parity = board.flip()
        self._write(route, given[0], 0)
        meet(deadline)
        self._take_pieces(route, board, meet, deadline, given, longest)

    def _take_pieces(
        self, route: Route, board: Board, meet: Meet, deadline: Deadline, given: Any, longest: int
    ) -> None:
        sources, targets = given
        for start, parity in self._pieces(route, board, meet, deadline, sources, longest):
            for view, target in zip(route.reads[parity], targets, strict=True):
                left = target.size - start
                if left > 0 and target.size < route.fetch_count:
                    piece = flat(target)[start : start + view.size]
                    piece[...] = view[: piece.size]

    def _pieces(
        self, route: Route, board: Board, meet: Meet, deadline: Deadline, sources: Sequence[Array], longest: int
    ) -> Iterator[tuple[int, int]]:
        """Yield where each piece begins and which areas it is in; the next is written meanwhile."""
        count, start = route.count, 0
        while True:
            parity = self._parity
            more = start + count < longest
            if more:
                self._parity = board.flip()
                self._write(route, sources, start + count)
            yield start, parity
            if not more:
                return
            meet(deadline)
            start += count

    def _write(self, route: Route, sources: Sequence[Array], start: int) -> None:
        for view, source in zip(route.writes[self._parity], sources, strict=True):
            if source.size < route.fetch_count:
                piece = flat(source)[start : start + view.size]
                view[: piece.size] = piece
            elif start == 0:
                view[0] = source.ctypes.data


class ToAll(Move):
    """Copy arrays to all ranks, but for what these have in common in memory that they share.

    If all have the outcome at one place, it is there already, but for parts that lie elsewhere, which their ranks copy
    to their places. If only some have it there, these write later what the others wait for.
    """

    _word = 0

    def told(self, about: tuple[int, int, int, int, int]) -> tuple[int, int, int, int, int]:
        return (*about[:4], self._word) if self._word else about

    def offer(self, board: Board, given: Any) -> None:
        parts, kept = _outcome(given)
        self._word = shared_word(parts)
        if self._word and (kept is None or kept[0].ctypes.data == kept[1].ctypes.data):
            self._word |= IN_PLACE
        self._parity = board.flip()
        if not self._word:
            self._write(self.route, given[0], 0)

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        every, some = board.told_in_common()
        if not some & COMMON or not self._have_in_common(every, some, meet, deadline, given):
            super().take(board, meet, deadline, given[:2])

    def _have_in_common(self, every: int, some: int, meet: Meet, deadline: Deadline, given: Any) -> bool:
        """Tell whether all ranks have the outcome in common, which is there then; else write what others wait for."""
        alike = not (every ^ some) & ~IN_PLACE
        if alike and every & IN_PLACE:
            return True
        kept = _outcome(given)[1]
        if alike and kept is not None:
            kept[0][...] = kept[1].reshape(kept[0].shape)
        elif not alike and self._word:
            self._write(self.route, given[0], 0)
        meet(deadline)
        return alike


class Combine(Move):
    """Reduce this rank's own array and what comes into another."""

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        sources, own, target, op = given
        own, target = flat(own), flat(target)
        longest = board.longest() if self._known is None else self._known
        for start, parity in self._pieces(self.route, board, meet, deadline, sources, longest):
            reads = self.route.reads[parity]
            if not reads:
                continue
            into = target[start : start + self.route.count]
            others = [view[: into.size] for view in reads]
            reduce_piece(op, own[start : start + self.route.count], others, into, board.size)


def _outcome(given: Any) -> tuple[Sequence[Array], tuple[Array, Array] | None]:
    """Return all parts of what comes out, and where this rank's own goes and comes from, if it is one of them."""
    sources, targets, *more = given
    return (more[0], more[1]) if more else ([*sources, *targets], None)
