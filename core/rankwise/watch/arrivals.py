"""Who came when to the same collective, who was waited for, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from rankwise.watch.clocks import TOGETHER

__all__ = ["Arrival", "Lateness", "Meeting", "latest", "lateness", "meetings", "waits"]

#: By how much a rank must be late at the median to be named; scheduling alone makes up for less.
_NOTABLE_NS = 100_000
#: In which part of the calls it must be the last.
_MOSTLY = 0.5
#: Fewer calls say nothing.
_FEWEST = 8


class Arrival(NamedTuple):
    """One rank's beginning of a collective, by the clock that all have in common."""

    op: str
    number: int
    began_ns: int


class Meeting(NamedTuple):
    """One collective to which all members have come."""

    op: str
    number: int
    came_ns: Mapping[int, int]

    @property
    def complete_ns(self) -> int:
        """When the last had come."""
        return max(self.came_ns.values())


class Lateness(NamedTuple):
    """How a rank comes to the collectives of its group.

    Attributes:
        rank: The rank.
        calls: Of how many collectives this is known.
        last: To how many of them it came last.
        late_ns: By how much it came after all others, at the median; negative where others come later.
        cost_ns: For how long others have waited for it alone, all calls together.
    """

    rank: int
    calls: int
    last: int
    late_ns: int
    cost_ns: int


def meetings(arrivals: Mapping[int, Iterable[Arrival]], ranks: Sequence[int]) -> list[Meeting]:
    """Return the collectives that wait for all and to which all of `ranks` are known to have come, in order."""
    came: dict[tuple[int, str], dict[int, int]] = {}
    for rank in ranks:
        for op, number, began_ns in arrivals.get(rank, ()):
            if op in TOGETHER:
                came.setdefault((number, op), {})[rank] = began_ns
    whole = ((key, times) for key, times in came.items() if len(times) == len(ranks))
    return [Meeting(op, number, times) for (number, op), times in sorted(whole, key=lambda item: item[0])]


def lateness(met: Sequence[Meeting]) -> dict[int, Lateness]:
    """Return for each rank how it comes."""
    if not met or len(met[0].came_ns) < 2:
        return {}
    ahead: dict[int, list[int]] = {rank: [] for rank in met[0].came_ns}
    last: Counter[int] = Counter()
    cost: Counter[int] = Counter()
    for meeting in met:
        (second_ns, _), (last_ns, rank) = sorted((ns, rank) for rank, ns in meeting.came_ns.items())[-2:]
        last[rank] += 1
        cost[rank] += last_ns - second_ns
        for each, ns in meeting.came_ns.items():
            ahead[each].append(ns - (second_ns if each == rank else last_ns))
    return {
        rank: Lateness(rank, len(met), last[rank], int(median(margins)), cost[rank]) for rank, margins in ahead.items()
    }


def latest(late: Mapping[int, Lateness], error_ns: int = 0) -> Lateness | None:
    """Return the rank that the others wait for, if there is one: mostly the last, and by more than clocks are wrong."""
    most = max(late.values(), key=lambda each: each.last, default=None)
    if most is None or most.calls < _FEWEST or most.last < _MOSTLY * most.calls:
        return None
    return most if most.late_ns >= max(_NOTABLE_NS, error_ns) else None


def waits(met: Iterable[Meeting]) -> dict[int, int]:
    """Return for how many nanoseconds each rank has waited for the last one, all collectives together."""
    waited: Counter[int] = Counter()
    for meeting in met:
        for rank, ns in meeting.came_ns.items():
            waited[rank] += meeting.complete_ns - ns
    return dict(waited)
