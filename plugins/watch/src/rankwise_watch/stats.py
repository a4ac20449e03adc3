"""What one rank has counted: calls, bytes, times, waits and errors of each group and operation."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rankwise.observing import (
    GroupLike,
    ProcessGroup,
    Totals,
    World,
    current,
    resolve,
    rich_display,
    shortened,
    unasked,
)


class OperationStats(NamedTuple):
    """This rank's figures of one operation on one group.

    Attributes:
        calls: Number of calls it has begun.
        nbytes: Number of bytes of its own arrays in them.
        time_s: The time of all calls that have ended, from beginning to end. An asynchronous call ends when the program
            or a tool sees that it has.
        waiting_s: The part of it spent waiting for others with nothing to move; None if the backend cannot measure it.
        errors: Number of calls that have failed.
    """

    calls: int = 0
    nbytes: int = 0
    time_s: float = 0.0
    waiting_s: float | None = None
    errors: int = 0


@dataclass(frozen=True)
class GroupStats:
    """This rank's figures of one group.

    Attributes:
        group: The group's name.
        rank: This rank, as a global one.
        description: Its name in messages.
        backend: Its backend.
        ranks: The global ranks of its members.
        operations: The figures, by operation.
        uncounted: Number of calls before counting began, which are not in `operations`.
    """

    group: str
    rank: int
    description: str
    backend: str
    ranks: tuple[int, ...]
    operations: Mapping[str, OperationStats]
    uncounted: int = 0

    def _repr_html_(self) -> str:
        rows = ((op, *("" if value is None else value for value in done)) for op, done in self.operations.items())
        title = f"rank {self.rank} of group {self.description!r}, {self.backend}"
        return rich_display.table(title, ("operation", *OperationStats._fields), rows)


def stats(group: GroupLike = None) -> GroupStats:
    """Return what this rank has done on a group: calls, bytes, time, time waiting for others, and errors.

    With `rankwise-native` everything counts from the beginning. Without, counting begins with the first call of this
    function, or with `RANKWISE_STATS=on` at the beginning: of what was before, only the last thousand calls count.

    Args:
        group: The group; None is the default group.

    Returns:
        The figures by operation.

    Raises:
        ValueError: This process is not a member, or there is no default group.

    Examples:
        >>> dist.init_process_group("gloo")
        >>> dist.all_reduce(np.ones(4, np.float32))
        >>> done = dist.stats().operations["all_reduce"]
        >>> done.calls, done.nbytes, done.errors
        (1, 16, 0)
        >>> dist.destroy_process_group()
    """
    with shortened:
        found = resolve(group, "stats")
        if found is None:
            raise ValueError("stats: this process is not a member of the group")
        _count(current())
        return _looked_after(found)


def every_group(world: World, but: Container[ProcessGroup] = ()) -> list[GroupStats]:
    """Return the figures of all groups but some, those outside of the world included."""
    _count(world)
    return [_looked_after(group) for group in world.every_group() if group not in but]


def _count(world: World) -> None:
    for each in world.worlds():
        each.recorder.count()


def _looked_after(group: ProcessGroup) -> GroupStats:
    unasked.look()  # works that have ended, and that nobody has asked
    return of_group(group)


def of_group(group: ProcessGroup) -> GroupStats:
    """Return the figures of one group."""
    totals = {op: Totals(*sums) for op, sums in group.trail.totals().items()}
    begun, _, message_begun, _ = group.trail.marks()
    made = sum(last.number + 1 for last in (begun, message_begun) if last is not None)
    return GroupStats(
        group.name,
        group.global_rank,
        group.group_desc,
        group.backend,
        group.ranks,
        {op: _operation(sums, group.tells_waits, bool(group.trail.failure)) for op, sums in sorted(totals.items())},
        max(0, made - sum(sums.begun for sums in totals.values())),
    )


def _operation(sums: Totals, tells_waits: bool, has_failed: bool) -> OperationStats:
    # In a group that has failed nothing goes on: what has not ended never will.
    errors = max(0, sums.begun - sums.ended) if has_failed else sums.failed
    waiting_s = sums.waited_ns / 1e9 if tells_waits else None
    return OperationStats(sums.begun, sums.nbytes, sums.busy_ns / 1e9, waiting_s, errors)
