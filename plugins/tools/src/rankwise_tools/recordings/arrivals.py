"""Who came when to the same collective, who was waited for, and by how much."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import median
from typing import NamedTuple

from rankwise_tools.recordings.clocks import TOGETHER

#: A collective is held up if the last rank comes to it so long after all others, and a message if one waits so long for
#: the other; less is no more than scheduling.
NOTABLE_NS = 100_000
#: Fewer that are held up say nothing.
_FEWEST = 8
#: How many times as many the one that is named holds up as any other rank does, and by how many standard deviations
#: more: with a busy machine each rank is the last now and then.
_TIMES, _DEVIATIONS = 2, 3


class Arrival(NamedTuple):
    """One rank's beginning of a collective, by the clock that all have in common."""

    op: str
    number: int
    began_ns: int


class CompleteCollective(NamedTuple):
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
        late_ns: By how much it came after all others, at the median; negative where others come later.
        alone_ns: For how long all others waited for it alone, of each collective to which it came last, from the
            shortest to the longest.
    """

    rank: int
    calls: int
    late_ns: int
    alone_ns: tuple[int, ...]

    @property
    def last(self) -> int:
        """To how many collectives it came last."""
        return len(self.alone_ns)

    @property
    def cost_ns(self) -> int:
        """For how long others have waited for it alone, all calls together."""
        return sum(self.alone_ns)


class Waited(NamedTuple):
    """The rank that others wait for: how many collectives it holds up, of how many, and by how much at their median."""

    rank: int
    held_up: int
    calls: int
    late_ns: int
    cost_ns: int


def meetings(arrivals: Mapping[int, Iterable[Arrival]], ranks: Sequence[int]) -> list[CompleteCollective]:
    """Return the collectives that wait for all and to which all of `ranks` are known to have come, in order."""
    came: dict[tuple[int, str], dict[int, int]] = {}
    for rank in ranks:
        for op, number, began_ns in arrivals.get(rank, ()):
            if op in TOGETHER:
                came.setdefault((number, op), {})[rank] = began_ns
    whole = ((key, times) for key, times in came.items() if len(times) == len(ranks))
    return [CompleteCollective(op, number, times) for (number, op), times in sorted(whole, key=lambda item: item[0])]


def lateness(met: Sequence[CompleteCollective]) -> dict[int, Lateness]:
    """Return for each rank how it comes."""
    if not met or len(met[0].came_ns) < 2:
        return {}
    ahead: dict[int, list[int]] = {rank: [] for rank in met[0].came_ns}
    alone: dict[int, list[int]] = {rank: [] for rank in met[0].came_ns}
    for meeting in met:
        (second_ns, _), (last_ns, rank) = sorted((ns, rank) for rank, ns in meeting.came_ns.items())[-2:]
        alone[rank].append(last_ns - second_ns)
        for each, ns in meeting.came_ns.items():
            ahead[each].append(ns - (second_ns if each == rank else last_ns))
    return {
        rank: Lateness(rank, len(met), int(median(margins)), tuple(sorted(alone[rank])))
        for rank, margins in ahead.items()
    }


def latest(late: Mapping[int, Lateness], error_ns: int = 0) -> Waited | None:
    """Return the rank that the others wait for, if there is one.

    A program that makes ten collectives a step and is late once in it comes last to one in ten, and to some of the
    others by chance. So what counts are those that are held up, by more than scheduling and clocks make up for.
    """
    held_up = {rank: each.alone_ns[_first(each, max(NOTABLE_NS, error_ns)) :] for rank, each in late.items()}
    ranks = sorted(held_up, key=lambda rank: -len(held_up[rank]))
    if len(ranks) < 2:
        return None
    rank, most, second = ranks[0], len(held_up[ranks[0]]), len(held_up[ranks[1]])
    if not stands_out(most, second):
        return None
    return Waited(rank, most, late[rank].calls, int(median(held_up[rank])), sum(held_up[rank]))


def stands_out(most: int, second: int) -> bool:
    """Tell whether a rank holds up so many more than any other does that it is not by chance."""
    return most >= max(_FEWEST, _TIMES * second, second + _DEVIATIONS * sqrt(most + second))


def _first(late: Lateness, limit_ns: int) -> int:
    return bisect_left(late.alone_ns, limit_ns)


def waits(met: Iterable[CompleteCollective]) -> dict[int, tuple[int, int]]:
    """Return for how many nanoseconds each rank has waited for the last one to come, and of how many.

    What counts is the time since the first collective of each rank was complete.
    """
    first: dict[int, int] = {}
    waited: Counter[int] = Counter()
    last: dict[int, int] = {}
    for complete_ns, meeting in sorted(((meeting.complete_ns, meeting) for meeting in met), key=lambda one: one[0]):
        for rank, ns in meeting.came_ns.items():
            if rank in first:
                waited[rank] += complete_ns - ns
            first.setdefault(rank, complete_ns)
            last[rank] = complete_ns
    return {rank: (waited[rank], last[rank] - first[rank]) for rank in first}
