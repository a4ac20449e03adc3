"""Watching over a job: what each rank has called, who is alive, and what to say when nothing moves any more.

The core finds this package by its entry point of the group `rankwise.observers`, and calls `begin`, `start` and `stop`
as the groups of a process begin and end; it knows nothing else of it. Where it is not installed, a rank knows of the
others what a backend's own calls tell, and nothing is written down when they hang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankwise.backends import require_series
from rankwise.observing import loading
from rankwise_watch.figures import serve_prometheus

if TYPE_CHECKING:
    from rankwise.observing import World

__all__ = ["begin", "serve_prometheus", "start", "stop"]

require_series("rankwise-watch", "0.1")


def begin(world: World, rank: int, ranks: tuple[int, ...]) -> Any:
    """Have calls noted, and return what sees who lives in a world of several processes with a store in common."""
    from rankwise.observing import HashStore, SilentRecorder, innermost

    if isinstance(world.recorder, SilentRecorder):  # nothing is compiled
        from rankwise_watch.noting import PythonRecorder

        world.recorder = PythonRecorder()
    store = world.store
    if store is None or isinstance(innermost(store), HashStore) or len(ranks) == 1:
        return None
    with loading():  # also what `start` needs, as the others may not have come yet
        from rankwise_watch import dump as dump
        from rankwise_watch import window as window
        from rankwise_watch.recorder import progress
        from rankwise_watch.watcher import Watcher

    return Watcher(world, store, rank, ranks, lambda: progress(world.recorder))


def start(world: World) -> None:
    """Begin to watch and to show figures, once the first group is there."""
    from rankwise_watch import dump, figures

    dump.install(world)
    figures.start(world)


def stop(world: World, reason: str) -> None:
    """Stop watching, before the groups are closed. Nothing here may keep a process from ending."""
    from rankwise_watch import dump

    dump.remove(world, reason)
