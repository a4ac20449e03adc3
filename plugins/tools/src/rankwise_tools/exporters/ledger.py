"""What a process has counted, with groups that it has left: monitoring reads now and then, and groups come and go."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from weakref import WeakSet

from rankwise.launching import ProcessGroup, World
from rankwise_watch.reading import GroupStats, OperationStats, every_group, of_group

#: Of so many kinds of calls on groups that are gone the figures are kept, the latest of them.
_MOST_LEFT = 1024


class Labels(NamedTuple):
    """By what monitoring tells figures apart."""

    rank: int
    group: str
    backend: str
    operation: str


Figures = dict[Labels, OperationStats]


class Ledger:
    """The figures of a world, which never go back: a group that is made again goes on where the last one ended."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._left: Figures = {}
        #: Groups whose figures are in there, as long as the world still lists them.
        self._kept: WeakSet[ProcessGroup] = WeakSet()
        world.on_leaving.append(self._keep)

    def close(self) -> None:
        """Keep nothing any more."""
        self._world.on_leaving.remove(self._keep)

    def figures(self) -> Figures:
        """Return what has been counted so far."""
        with self._lock:
            found = dict(self._left)
            live = every_group(self._world, self._kept)
        _add(found, live)
        return found

    def _keep(self, groups: Iterable[ProcessGroup]) -> None:
        with self._lock:
            for group in groups:
                if group not in self._kept:
                    self._kept.add(group)
                    stats = of_group(group)
                    for labels, _ in _rows(stats):
                        self._left[labels] = self._left.pop(labels, OperationStats())  # the latest at the end
                    _add(self._left, [stats])
            for labels in list(self._left)[:-_MOST_LEFT]:
                del self._left[labels]


def figures_of(groups: Iterable[GroupStats]) -> Figures:
    """Return the figures of groups; those that look alike from outside together."""
    found: Figures = {}
    _add(found, groups)
    return found


def _rows(group: GroupStats) -> Iterator[tuple[Labels, OperationStats]]:
    for op, figures in group.operations.items():
        yield Labels(group.rank, group.description, group.backend, op), figures


def _add(found: Figures, groups: Iterable[GroupStats]) -> None:
    for group in groups:
        for labels, figures in _rows(group):
            found[labels] = _sum(found.get(labels, OperationStats()), figures)


def _sum(one: OperationStats, other: OperationStats) -> OperationStats:
    waits = [each.waiting_s for each in (one, other) if each.waiting_s is not None]
    return OperationStats(
        one.calls + other.calls,
        one.nbytes + other.nbytes,
        one.time_s + other.time_s,
        sum(waits) if waits else None,
        one.errors + other.errors,
    )
