"""Times of several machines by one clock, from the collectives that they had in common.

Nobody leaves a barrier, and what is like one, before all have come: by true time each rank's end is after every
other's beginning. So each such call of ranks on two machines is a round trip, and bounds the difference of their clocks
from both sides. The estimate is the middle of what all calls leave, and half of that is the most that it can be wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

__all__ = ["TOGETHER", "Call", "Clock", "align"]

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


#: For each call, when the last rank of a machine came to it, and when the first one left.
_Spans = dict[Hashable, tuple[int, int]]


def _add(spans: _Spans, calls: Iterable[Call]) -> None:
    for key, began_ns, ended_ns in calls:
        came, left = spans.get(key, (began_ns, ended_ns))
        spans[key] = max(came, began_ns), min(left, ended_ns)


def _between(ours: _Spans, theirs: _Spans) -> Clock | None:
    """Return what to add to their times to have ours."""
    common = ours.keys() & theirs.keys()
    if not common:
        return None
    least = max(ours[key][0] - theirs[key][1] for key in common)
    most = min(ours[key][1] - theirs[key][0] for key in common)
    # Clocks that run apart can leave nothing in the end: then what is left over is by how much they did.
    return Clock((least + most) // 2, abs(most - least + 1) // 2)
