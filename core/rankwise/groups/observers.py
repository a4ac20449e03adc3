"""What observes the beginnings and ends of worlds: the watch, and what shows figures, each of which registers itself.

The package's `__init__` registers them, so that groups know nothing of what observes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rankwise.groups.world import World

__all__ = ["Observer", "begin", "observe", "start", "stop"]


class Observer(Protocol):
    """What watches over a world."""

    def begin(self, world: World, rank: int, ranks: tuple[int, ...]) -> Any:
        """Return what sees who lives, before the first group is made; None where there is nothing to see."""

    def start(self, world: World) -> None:
        """Begin, once the first group is there."""

    def stop(self, world: World, reason: str) -> None:
        """End, before the groups are closed."""


_observers: list[Observer] = []
_started: list[Callable[[World], None]] = []


def observe(observer: Observer, then: Callable[[World], None]) -> None:
    """Register what watches over all worlds, and what is called once it has begun."""
    _observers.append(observer)
    _started.append(then)


def begin(world: World, rank: int, ranks: tuple[int, ...]) -> Any:
    """Return what sees who lives in a world, as the observers have it."""
    return next((seen for each in _observers if (seen := each.begin(world, rank, ranks)) is not None), None)


def start(world: World) -> None:
    """Tell that the first group is there."""
    for observer in _observers:
        observer.start(world)
    for then in _started:
        then(world)


def stop(world: World, reason: str) -> None:
    """Tell that the groups are about to be closed."""
    for observer in _observers:
        observer.stop(world, reason)
