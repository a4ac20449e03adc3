"""Who sent to whom: the sends of each rank and the receives of others, put together by the order in which they began.

Between two ranks, messages of one tag are received in the order in which they were sent. So the first send belongs to
the first receive, and so on, where records reach back to the beginning. Where they do not, the matching is the latest
that is possible: no message is received before it is sent. That is exact as soon as one rank has once waited for the
other; where none has, nobody can tell, and there is nothing to tell of waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rankwise_tools.recordings.arrivals import NOTABLE_NS


class Side(NamedTuple):
    """What one rank did of a message; times by the clock that all ranks have in common.

    Attributes:
        number: Its place among all messages of this rank on the group.
        op: The operation.
        at: The program's call, a short "file:line".
        peer: The other rank; None for a receive from anyone of which nobody has noted who sent.
        tag: The tag.
        began_ns: When the program called it.
        asked_ns: Since when the program waited for it; 0 if it never did.
        ended_ns: When it was seen to end; 0 if it was not.
    """

    number: int
    op: str
    at: str
    peer: int | None
    tag: int
    began_ns: int
    asked_ns: int
    ended_ns: int

    @property
    def sends(self) -> bool:
        """Whether it is a send and no receive."""
        return "send" in self.op

    @property
    def call(self) -> str:
        """Operation and place in words."""
        return f"{self.op} at {self.at}" if self.at else self.op


class History(NamedTuple):
    """What one rank has noted of the messages of a group, up to when.

    Attributes:
        sides: All that it has noted; what has failed has neither a peer nor an end.
        until_ns: When that was written down.
        machine: What tells its machine's clock from others.
        error_ns: By how much that clock may be wrong; None if it is not known.
    """

    sides: Sequence[Side]
    until_ns: int
    machine: str = ""
    error_ns: int | None = 0


class Message(NamedTuple):
    """One message that has been received."""

    source: int
    send: Side
    target: int
    receive: Side
    error_ns: int | None


class _Known(NamedTuple):
    """What is left of the sends from one rank to another with one tag, or of the receives."""

    sides: list[Side]
    is_whole: bool


def matched(histories: Mapping[int, History]) -> list[Message]:
    """Return the messages of a group of which both sides are known, in the order in which they were sent."""
    sends, receives = dict[tuple[int, int, int], _Known](), dict[tuple[int, int, int], _Known]()
    for rank, history in histories.items():
        for side, is_whole in _unbroken(history.sides):
            if side.peer is not None:
                ends = (rank, side.peer) if side.sends else (side.peer, rank)
                known = sends if side.sends else receives
                known.setdefault((*ends, side.tag), _Known([], is_whole)).sides.append(side)
    found = [
        message
        for key in sends.keys() & receives.keys()
        for message in _pairs(key[:2], sends[key], receives[key], histories)
    ]
    return sorted(found, key=lambda message: (message.send.began_ns, message.source, message.send.number))


def _unbroken(sides: Sequence[Side]) -> Iterator[tuple[Side, bool]]:
    """Yield the last messages of which none is missing, each with whether that is all from the first on."""
    found = sorted(sides, key=lambda side: side.number)
    first = next((i for i in range(len(found) - 1, 0, -1) if found[i - 1].number + 1 != found[i].number), 0)
    unknown = {side.tag: side.number for side in found if side.peer is None and side.ended_ns}  # from whom?
    for side in found[first:]:
        after = -1 if side.sends else unknown.get(side.tag, -1)
        if side.number > after:
            yield side, after < 0 and found[first].number == 0


def _pairs(
    ends: tuple[int, int], sends: _Known, receives: _Known, histories: Mapping[int, History]
) -> Iterator[Message]:
    source, target = ends
    error_ns = _error(histories[source], histories[target])
    shift = _shift(sends, receives, histories[source].until_ns, error_ns)
    for place, receive in enumerate(receives.sides):
        if shift is not None and receive.ended_ns and 0 <= place + shift < len(sends.sides):
            yield Message(source, sends.sides[place + shift], target, receive, error_ns)


def _error(one: History, other: History) -> int | None:
    if one.machine == other.machine:
        return 0
    return None if one.error_ns is None or other.error_ns is None else one.error_ns + other.error_ns


def _shift(sends: _Known, receives: _Known, until_ns: int, error_ns: int | None) -> int | None:
    """Return which send the first receive belongs to, by its place; None where nobody can tell."""
    if sends.is_whole and receives.is_whole:
        return 0
    if error_ns is None:
        return None
    shift = min(_limits(sends.sides, receives.sides, until_ns, error_ns), default=None)
    return shift if shift is not None and _has_waited(sends.sides, receives.sides, shift) else None


def _limits(sends: Sequence[Side], receives: Sequence[Side], until_ns: int, error_ns: int) -> Iterator[int]:
    """Yield what the shift cannot exceed: what each receive shows that ended before the sends were written down."""
    began = [send.began_ns for send in sends]
    for place, receive in enumerate(receives):
        if receive.ended_ns and receive.ended_ns + error_ns < until_ns:
            yield bisect_right(began, receive.ended_ns + error_ns) - 1 - place


def _has_waited(sends: Sequence[Side], receives: Sequence[Side], shift: int) -> bool:
    """Tell whether one side of a message has once waited for the other to begin, for longer than by chance."""
    for place, receive in enumerate(receives):
        if receive.ended_ns and 0 <= place + shift < len(sends):
            send = sends[place + shift]
            if receive.asked_ns and send.began_ns - receive.asked_ns >= NOTABLE_NS:
                return True
            if send.asked_ns and send.ended_ns >= receive.began_ns >= send.asked_ns + NOTABLE_NS:
                return True
    return False
