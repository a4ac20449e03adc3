"""A rank's own side of the suite: the worlds that its process is in, and how it joins and leaves them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import rankwise as dist
from rankwise.errors import DistError
from rankwise.kits import PrefixStore, Store, World, leave_everything, registry, use
from rankwise_network.launcher_env import from_environment
from rankwise_stores import FileStore
from rankwise_testing.messages import FunctionName
from rankwise_testing.suite.arrays import Terms, use_terms
from rankwise_testing.worker import before_exit, watch_world

#: The time-out of the groups under test.
TIMEOUT_S = 15.0


@dataclass(frozen=True)
class JoinPlan:
    """How a rank joins a world, as often as it likes.

    Attributes:
        backend: The backend, with its device, as `init_process_group` takes it.
        size: Number of ranks.
        where: A store, or the address of one; None where the backend's runtime knows.
        folder: A folder that the processes of this meeting share; "" if they are threads.
        timeout_s: The group's time-out.
    """

    backend: str
    size: int
    where: Store | str | None
    folder: str = ""
    timeout_s: float = TIMEOUT_S

    def join(self, rank: int, **terms: Any) -> None:
        """Make the default group."""
        place: dict[str, Any] = {"rank": rank, "world_size": self.size}
        if self.where is None:
            place = {}
        elif isinstance(self.where, Store):
            place["store"] = self.where
        else:
            place["init_method"] = self.where
        dist.init_process_group(self.backend, timeout=self.timeout_s, **place, **terms)

    def make(self, rank: int, name: str, **terms: Any) -> dist.ProcessGroup:
        """Make a group outside of the world."""
        terms = {"backend": self.backend, "timeout": self.timeout_s, "size": self.size, **terms}
        return dist.ProcessGroup.create(store=self.outside(), rank=rank, name=name, **terms)

    def outside(self) -> Store:
        """Return the store in which groups are made outside of the world."""
        if isinstance(self.where, Store):
            return PrefixStore("outside", self.where)
        path = f"{self.folder}/outside"
        if path not in _stores:
            _stores[path] = FileStore(path)
        return _stores[path]

    def aside(self) -> Store | None:
        """Return a store that outlives the group, by which its ranks can tell each other how far they are."""
        if self.where is None:
            return None
        if isinstance(self.where, Store):
            return PrefixStore("aside", self.where)
        return FileStore(self.where.removeprefix("file://") + "-aside", self.size)


def register_from(place: str | None) -> None:
    """Register a backend that is not installed: what `rankwise_backend` of a module declares, or `module:function`."""
    if place is not None:
        module, _, function = place.partition(":")
        declare = getattr(import_module(module), function or "rankwise_backend")
        registry.register(declare(), replace=True)


@dataclass(frozen=True)
class RankTask:
    """Where a process is to run a function.

    Attributes:
        module: A module whose backend is to be registered first.
        terms: What the tests go by.
        meeting: How to join the world.
        life: Which world of this process it is.
        lives: All that are still needed.
    """

    module: str | None
    terms: Terms
    meeting: JoinPlan
    life: int
    lives: tuple[int, ...]

    def enter(self) -> None:
        """Make the world of the life the current one, and leave those that are not needed any more.

        A world is left by the call after the last one in it: then all ranks have ended there.
        """
        register_from(self.module)
        use_terms(self.terms)
        for life in [life for life in _worlds if life not in self.lives]:
            _leave(_worlds.pop(life))
        if self.life not in _worlds:
            _worlds[self.life] = World(left_marks=_joined)
            watch_world(_worlds[self.life])
        use(_worlds[self.life])


#: The stores of this process, by path.
_stores: dict[str, FileStore] = {}
#: The worlds of this process, by life.
_worlds: dict[int, World] = {}
#: The lives that this process has joined in whatever world, as `World.left_marks` has them: where a runtime knows the
#: ranks, all worlds meet in its one store, and none is to take the life of another for the one that is beginning.
_joined: set[tuple[bytes, int]] = set()


def in_world(place: RankTask, function: FunctionName, args: tuple[Any, ...]) -> Any:
    """Run a function in a world of this process, which is made if need be."""
    place.enter()
    if not dist.is_initialized():
        place.meeting.join(from_environment().rank)
    return function.find()(*args)


def outside(place: RankTask, function: FunctionName, args: tuple[Any, ...]) -> Any:
    """Run a function in a world without a default group."""
    place.enter()
    return function.find()(place.meeting, from_environment().rank, *args)


def _leave(world: World) -> None:
    use(world)
    with suppress(DistError):
        leave_everything()


def _leave_all() -> None:
    for world in _worlds.values():
        _leave(world)
    for store in _stores.values():
        store.close()


before_exit(_leave_all)
