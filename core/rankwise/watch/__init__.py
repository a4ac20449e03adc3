"""Watching over a job: what each rank has called, who is alive, and what to say when nothing moves any more.

`begin`, `start` and `stop` are called by `init_process_group` and at the end; the core knows nothing else of this
folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankwise.basics.loading import loading

if TYPE_CHECKING:
    from rankwise.groups.world import World

__all__ = ["begin", "start", "stop"]


def start(world: World) -> None:
    """Begin to watch, once the first group is there."""
    from rankwise.watch import dump

    dump.install(world)


def stop(world: World, reason: str) -> None:
    """Stop watching, before the groups are closed. Nothing here may keep a process from ending."""
    from rankwise.watch import dump

    dump.remove(world, reason)


def begin(world: World, rank: int, ranks: tuple[int, ...]) -> Any:
    """Return what sees who lives, for a world that has other processes in it and a store in common with them."""
    from rankwise.store import HashStore, innermost

    store = world.store
    if store is None or isinstance(innermost(store), HashStore) or len(ranks) == 1:
        return None
    with loading():
        from rankwise.watch.recorder import progress
        from rankwise.watch.watcher import Watcher

    return Watcher(world, store, rank, ranks, lambda: progress(world.recorder))
