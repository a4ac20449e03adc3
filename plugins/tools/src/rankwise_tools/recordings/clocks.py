"""Times of several machines by one clock, from the collectives that they had in common.

Nobody leaves a barrier, and what is like one, before all have come: by true time each rank's end is after every
other's beginning. So each such call of ranks on two machines is a round trip, and bounds the difference of their clocks
from both sides. Between the bounds, the estimate is the one by which ranks leave together. It is wrong by no more than
the bounds allow, or than the last to come takes to leave, as the others do not take longer for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from statistics import median
from typing import NamedTuple

#: Collectives that no rank leaves before all have come.
TOGETHER = ("barrier", "all_reduce", "all_gather", "all_to_all", "reduce_scatter")


class Call(NamedTuple):
    """One call of a collective that no rank leaves before all have come, by the clock of its machine."""

    key: Hashable
    began_ns: int
    ended_ns: int


class Clock(NamedTuple):
    """How a machine's clock relates to the first one's: what to add, and by how much that may be wrong.

    The error is None where nothing is known but the clocks of the day.
    """

    offset_ns: int
    error_ns: int | None = 0


def align(
    machines: Mapping[int, str], calls: Mapping[int, Iterable[Call]], days: Mapping[int, int]
) -> dict[int, Clock]:
    """Return for each rank how its times become those of the lowest rank's machine.

    Args:
        machines: For each rank, what tells its machine's clock from others.
        calls: For each rank its calls that have ended.
        days: For each rank, what makes its times those of the clock of the day, where nothing better is known.
    """
    first = min(machines)
    spans: dict[str, _Spans] = {}
    for rank, machine in machines.items():
        _add(spans.setdefault(machine, {}), calls.get(rank, ()))
    clocks = {machines[first]: Clock(0)}
    for rank, machine in sorted(machines.items()):
        if machine not in clocks:
            between = _between(spans[machines[first]], spans[machine])
            clocks[machine] = between or Clock(days[rank] - days[first], None)
    return {rank: clocks[machine] for rank, machine in machines.items()}


class _Span(NamedTuple):
    """One call on a machine: when its last rank came, when its first one left, and how long the shortest call took."""

    came_ns: int
    left_ns: int
    shortest_ns: int


_Spans = dict[Hashable, _Span]


def _add(spans: _Spans, calls: Iterable[Call]) -> None:
    for key, began_ns, ended_ns in calls:
        span = spans.get(key, _Span(began_ns, ended_ns, ended_ns - began_ns))
        took_ns = min(span.shortest_ns, ended_ns - began_ns)
        spans[key] = _Span(max(span.came_ns, began_ns), min(span.left_ns, ended_ns), took_ns)


def _between(ours: _Spans, theirs: _Spans) -> Clock | None:
    """Return what to add to their times to have ours."""
    common = ours.keys() & theirs.keys()
    if not common:
        return None
    pairs = [(ours[key], theirs[key]) for key in common]
    least = max(our.came_ns - their.left_ns for our, their in pairs)
    most = min(our.left_ns - their.came_ns for our, their in pairs)
    # Clocks that run apart can leave nothing between the bounds.
    least, most = min(least, most), max(least, most)
    offset = min(max(int(median(our.left_ns - their.left_ns for our, their in pairs)), least), most)
    doubt = int(median(min(our.shortest_ns, their.shortest_ns) for our, their in pairs))
    return Clock(offset, min(max(most - offset, offset - least), doubt))
