"""Long data among three ranks and more, compiled: in rounds, until one takes so long that Python goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import COLLECTIVE_TAG, Array, Deadline, ReduceOp, as_bytes
from rankwise_gloo_tcp.collectives.opening import Opening
from rankwise_gloo_tcp.collectives.streams import Carrier, Exchange, Lanes, segment_nbytes, wait_for
from rankwise_native import Wire

if TYPE_CHECKING:
    from rankwise_gloo_tcp.engine.request import Request

__all__ = ["Rounds"]


class Rounds:
    """Exchanges among some ranks.

    Args:
        engine: What carries messages among them.
        opening: What has a room for a segment of each.
        wire: The wire to them.
    """

    def __init__(self, engine: Carrier, opening: Opening, wire: Wire) -> None:
        self.engine, self.opening, self.wire = engine, opening, wire

    def exchange(self, sent: Lanes, taken: Lanes, op: ReduceOp | None, deadline: Deadline) -> None:
        """Do what an `Exchange` does, in C as far as that goes.

        In C the ranks make one round after the other, which is slow where each has to wait for a processor. So once one
        takes long, all others are begun together.
        """
        name, size = None if op is None else op.name, self.engine.size
        to, source = (tuple(map(lanes.get, range(size))) for lanes in (sent, taken))
        left = self.wire.exchange(to, source, name, segment_nbytes(size))
        if left is True:
            return
        if left is False:
            Exchange(self.engine, sent, taken, op).finish(deadline)
            return
        begin, end, lanes = left
        now, later = (_cut(sent, begin, end), _cut(taken, begin, end)), (_cut(sent, end), _cut(taken, end))
        rest: list[_Rest | Exchange] = [_Rest(self, *now, op, lanes), Exchange(self.engine, *later, op)]
        for each in rest:
            each.finish(deadline)


def _cut(lanes: Lanes, begin: int, end: int | None = None) -> Lanes:
    return {peer: flat[begin:end] for peer, flat in lanes.items()}


class _Rest:
    """What C has left of a round, which begins immediately.

    Args:
        rounds: What it is one of.
        sent: What goes to each rank.
        taken: Where what comes from each goes.
        op: By what it is reduced there, if it is.
        lanes: Of each rank whether it has yet to be sent to, whether something has yet to come, how many elements of
            that are reduced, and what else to wait for.
    """

    def __init__(
        self,
        rounds: Rounds,
        sent: Lanes,
        taken: Lanes,
        op: ReduceOp | None,
        lanes: list[tuple[int, bool, bool, int, Any]],
    ) -> None:
        self._engine, self._op = rounds.engine, op
        rooms = rounds.opening.rooms()
        self._receives: list[Request] = []
        self._sums: list[tuple[Array, Array]] = []
        for peer, _, comes, merged, _ in lanes:
            if peer not in taken or not taken[peer].size:
                continue
            segment, room = taken[peer], as_bytes(taken[peer])
            if op is not None:
                room = rooms[peer][: segment.nbytes]
                self._sums.append((segment[merged:], np.frombuffer(room, np.uint8).view(segment.dtype)[merged:]))
            if comes:
                self._receives.append(self._engine.receive_bytes(room, peer, COLLECTIVE_TAG, True))
        self._sends: list[Request] = [rest for *_, rest in lanes if rest is not None]
        self._sends += [
            self._engine.send_bytes(as_bytes(sent[peer]), peer, COLLECTIVE_TAG, True)
            for peer, goes, *_ in lanes
            if goes
        ]

    def finish(self, deadline: Deadline) -> None:
        """Return when it is done."""
        wait_for(self._engine, self._receives, deadline)
        for segment, theirs in self._sums:
            if self._op is not None:
                self._op.combine(segment, theirs)
        wait_for(self._engine, self._sends, deadline)
