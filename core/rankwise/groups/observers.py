"""What observes the beginnings and ends of worlds, as the watch of `rankwise-watch` does: groups know nothing of it.

An observer is found as backends are: by an entry point of the group `rankwise.observers`, which stands for a module
with the functions of `Observer`. One that cannot be loaded is told of in the log, and the groups begin without it. All
ranks have the same observers, or no group is made: a rank that tells nothing of itself would be taken for a hung one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rankwise.backends.discovery import PluginFault, run_plugin
from rankwise.basics import entry_points

if TYPE_CHECKING:
    from rankwise.groups.world import World

ENTRY_POINT_GROUP = "rankwise.observers"


class Observer(Protocol):
    """What watches over a world."""

    def begin(self, world: World, rank: int, ranks: tuple[int, ...]) -> Any:
        """Return what sees who lives, before the first group is made; None where there is nothing to see."""

    def start(self, world: World) -> None:
        """Begin, once the first group is there."""

    def stop(self, world: World, reason: str) -> None:
        """End, before the groups are closed."""


#: By their names; None is one that cannot be loaded. They stay, as modules do.
_observers: dict[str, Observer | None] = {}


def find() -> None:
    """Look for the observers and load them, once; a process that ranks are forked from does so for all of them."""
    if not _observers:
        _observers.update((name, _loaded(name, value)) for name, value in _installed())


def begin(world: World, rank: int, ranks: tuple[int, ...]) -> Any:
    """Return what sees who lives in a world, as the observers have it."""
    find()
    return next((seen for each in _there() if (seen := each.begin(world, rank, ranks)) is not None), None)


def names() -> list[str]:
    """Return the names of the observers that are there."""
    return sorted(name for name, observer in _observers.items() if observer is not None)


def start(world: World) -> None:
    """Tell that the first group is there."""
    for observer in _there():
        observer.start(world)


def stop(world: World, reason: str) -> None:
    """Tell that the groups are about to be closed."""
    for observer in _there():
        observer.stop(world, reason)


def _installed() -> list[tuple[str, str]]:
    """Return the names and values of the entry points; what is installed in an unusual way takes more than a look."""
    found = list(entry_points.declared(ENTRY_POINT_GROUP))
    return found or [(point.name, point.value) for point in entry_points.installed(ENTRY_POINT_GROUP)]


def _there() -> list[Observer]:
    return [observer for observer in _observers.values() if observer is not None]


def _loaded(name: str, value: str) -> Observer | None:
    try:
        observer: Observer = run_plugin("it cannot be loaded", lambda: entry_points.load(value))
    except PluginFault as fault:
        import logging  # only now: it takes as long to load as ten of our modules

        logging.getLogger("rankwise").warning("nothing is watched by %s (%s): %s", name, value, fault)
        return None
    return observer
