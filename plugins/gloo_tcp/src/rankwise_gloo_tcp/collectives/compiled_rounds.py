"""Long data among three ranks and more, compiled: in rounds, until one takes so long that Python goes on."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rankwise.backends import COLLECTIVE_TAG, Array, Deadline, ReduceOp, as_bytes
from rankwise_gloo_tcp.collectives.opening import Opening
from rankwise_gloo_tcp.collectives.streams import Carrier, Exchange, Lanes, Pending, wait_for

__all__ = ["Lane", "Piece", "Round", "go_on"]

#: An array, and which of its bytes.
Piece: TypeAlias = "tuple[Array, tuple[int, int]]"
#: A rank, whether it has yet to be sent to, whether something has yet to come from there, how many elements of that are
#: reduced, and what else to wait for.
Lane: TypeAlias = "tuple[int, bool, bool, int, Any]"


class Round(NamedTuple):
    """A round of an exchange, as C leaves it.

    Attributes:
        sent, taken: What the whole exchange is about.
        op: By what all that comes is reduced.
        begin, end: Which elements are in this round.
        lanes: How far each rank has come.
    """

    sent: Lanes
    taken: Lanes
    op: ReduceOp | None
    begin: int
    end: int
    lanes: list[Lane]


def go_on(between: Carrier, opening: Opening, left: Round, deadline: Deadline) -> None:
    """Go on with a round, and with all that follow at the same time.

    In C the ranks make one round after the other, which is slow where each has to wait for a processor.

    Args:
        between: What carries messages among the ranks.
        opening: What has a room for a segment of each.
        left: What C has left.
        deadline: When all must be done.
    """
    later = _cut(left.sent, left.end), _cut(left.taken, left.end)
    nbytes = (left.end - left.begin) * max(flat.itemsize for flat in (*left.sent.values(), *left.taken.values()))
    rest: list[_Rest | Exchange] = [_Rest(between, opening, left), Exchange(between, *later, left.op, nbytes)]
    for each in rest:
        each.finish(deadline)


def _cut(lanes: Lanes, begin: int, end: int | None = None) -> Lanes:
    return {peer: flat[begin:end] for peer, flat in lanes.items()}


class _Rest:
    """What C has left of a round, which begins immediately."""

    def __init__(self, between: Carrier, opening: Opening, left: Round) -> None:
        self._between, self._op = between, left.op
        sent, taken = _cut(left.sent, left.begin, left.end), _cut(left.taken, left.begin, left.end)
        rooms = opening.rooms()
        self._receives: list[Pending] = []
        self._sums: list[tuple[Array, Array]] = []
        for peer, _, comes, merged, _ in left.lanes:
            if peer not in taken or not taken[peer].size:
                continue
            segment, room = taken[peer], as_bytes(taken[peer])
            if left.op is not None:
                room = rooms[peer][: segment.nbytes]
                self._sums.append((segment[merged:], np.frombuffer(room, np.uint8).view(segment.dtype)[merged:]))
            if comes:
                self._receives.append(between.receive_bytes(room, peer, COLLECTIVE_TAG, True))
        self._sends: list[Pending] = [rest for *_, rest in left.lanes if rest is not None]
        self._sends += [
            between.send_bytes(as_bytes(sent[peer]), peer, COLLECTIVE_TAG, True)
            for peer, goes, *_ in left.lanes
            if goes
        ]

    def finish(self, deadline: Deadline) -> None:
        """Return when it is done."""
        wait_for(self._between, self._receives, deadline)
        for segment, theirs in self._sums:
            if self._op is not None:
                self._op.combine(segment, theirs)
        wait_for(self._between, self._sends, deadline)
