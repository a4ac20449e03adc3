"""Where the suite's ranks live: on threads of this process, on processes, or on processes of another launcher."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from itertools import count
from typing import Any

import rankwise as dist
from rankwise.contract import BackendSpec
from rankwise.errors import DistError
from rankwise.launcher_env import from_environment
from rankwise.registry import registry
from rankwise.store import HashStore, Store
from rankwise.testing.harness import RankPool
from rankwise.testing.local import IN_THREADS
from rankwise.testing.local_world import LocalWorld
from rankwise.testing.messages import FunctionName
from rankwise.testing.suite.arrays import use_device
from rankwise.testing.worker import before_exit, watch_world
from rankwise.world import World, use

__all__ = ["MAX_SIZE", "Meeting", "ProcessRanks", "Ranks", "ThreadRanks", "make_ranks", "register_from"]

#: The largest world of the suite.
MAX_SIZE = 4

_TIMEOUT_S = 15.0
_RUN_S = 120.0


@dataclass(frozen=True)
class Meeting:
    """How a rank joins a world, as often as it likes.

    Attributes:
        backend: The backend, with its device, as `init_process_group` takes it.
        size: Number of ranks.
        where: A store, or the address of one; None where the backend's runtime knows.
        timeout_s: The group's time-out.
    """

    backend: str
    size: int
    where: Store | str | None
    timeout_s: float = _TIMEOUT_S

    def join(self, rank: int) -> None:
        """Make the default group."""
        place: dict[str, Any] = {"rank": rank, "world_size": self.size}
        if self.where is None:
            place = {}
        elif isinstance(self.where, Store):
            place["store"] = self.where
        else:
            place["init_method"] = self.where
        dist.init_process_group(self.backend, timeout=self.timeout_s, **place)


class Ranks(ABC):
    """Runs functions on worlds of several sizes."""

    def __init__(self, backend: str, device: str, module: str | None) -> None:
        self.backend, self.device, self.module = backend, device, module

    @abstractmethod
    def run(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function on every rank of a world that other tests use too, and return what each returned."""

    @abstractmethod
    def run_alone(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function on a world of its own, which it may break."""

    @abstractmethod
    def run_outside(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run `function(meeting, rank, *args)` where there is no world yet."""

    @abstractmethod
    def renew(self) -> None:
        """Let the next `run` of each size begin with a new world."""

    @abstractmethod
    def close(self) -> None:
        """End all worlds."""

    @property
    def full_name(self) -> str:
        """The backend as `init_process_group` takes it, for the device under test alone."""
        return f"{self.device}:{self.backend}"


class ThreadRanks(Ranks):
    """Ranks that are threads of this process."""

    def __init__(self, backend: str, device: str, module: str | None) -> None:
        super().__init__(backend, device, module)
        self._worlds: dict[int, LocalWorld] = {}

    def run(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        __tracebackhide__ = True
        if size not in self._worlds:
            self._worlds[size] = LocalWorld(size, self.full_name, _TIMEOUT_S)
        return self._run(self._worlds[size], function, args)

    def run_alone(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        __tracebackhide__ = True
        world = LocalWorld(size, self.full_name, _TIMEOUT_S)
        try:
            return self._run(world, function, args)
        finally:
            with suppress(DistError):
                world.end()

    def run_outside(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        __tracebackhide__ = True
        meeting = Meeting(self.full_name, size, HashStore())

        def program() -> Any:
            rank = dist.get_rank()
            dist.destroy_process_group()
            return function(meeting, rank, *args)

        return self.run_alone(size, program)

    def renew(self) -> None:
        worlds, self._worlds = self._worlds, {}
        for world in worlds.values():
            with suppress(DistError):
                world.end()

    def close(self) -> None:
        self.renew()

    def _run(self, world: LocalWorld, function: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
        __tracebackhide__ = True

        def program() -> list[Any]:
            use_device(self.device)  # in a context of its own, which the threads inherit
            return world.run(function, *args)

        return copy_context().run(program)


class ProcessRanks(Ranks):
    """Ranks that are processes, started once for all tests."""

    def __init__(
        self, backend: str, device: str, module: str | None, launch: Sequence[str], env: Mapping[str, str]
    ) -> None:
        super().__init__(backend, device, module)
        self._launch, self._env = tuple(launch), dict(env)
        self._has_runtime = registry.get(backend).runtime is not None
        self._pools: dict[int, RankPool] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="rankwise-")
        self._names = count()
        self._life: dict[int, int] = {}

    def run(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        __tracebackhide__ = True
        life = self._life.setdefault(size, next(self._names))
        return self._run(size, in_world, life, FunctionName.of(function), args)

    def run_alone(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        __tracebackhide__ = True
        return self._run(size, in_world, next(self._names), FunctionName.of(function), args)

    def run_outside(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        __tracebackhide__ = True
        return self._run(size, outside, next(self._names), FunctionName.of(function), args)

    def renew(self) -> None:
        # Whoever was told to stop has given up all its worlds.
        self._life.clear()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._directory.cleanup()

    def _run(self, size: int, runner: Callable[..., Any], life: int, *args: Any) -> list[Any]:
        __tracebackhide__ = True
        # A world of a runtime is as large as the runtime has made it; others can take some of the processes.
        number = size if self._has_runtime or self._launch else MAX_SIZE
        if number not in self._pools:
            self._pools[number] = RankPool(number, launch=self._launch, env=self._env)
        where = None if self._has_runtime else f"file://{self._directory.name}/{life}"
        meeting = Meeting(self.full_name, size, where)
        place = Place(self.module, self.device, meeting, life, (life, *self._life.values()))
        try:
            return self._pools[number].run(runner, place, *args, timeout=_RUN_S, size=size)
        except BaseException:
            self.renew()
            raise


def make_ranks(
    spec: BackendSpec, device: str, launch: Sequence[str], env: Mapping[str, str], module: str | None
) -> Ranks:
    """Return where the ranks of a backend live."""
    launch = tuple(launch) or spec.launch
    if launch == IN_THREADS:
        return ThreadRanks(spec.name, device, module)
    return ProcessRanks(spec.name, device, module, () if launch == ("processes",) else launch, env)


def register_from(module: str | None) -> None:
    """Register the backend of a module that is not installed."""
    if module is not None:
        from importlib import import_module

        registry.register(import_module(module).rankwise_backend(), replace=True)


@dataclass(frozen=True)
class Place:
    """Where a process is to run a function.

    Attributes:
        module: A module whose backend is to be registered first.
        device: The kind of device under test.
        meeting: How to join the world.
        life: Which world of this process it is.
        lives: All that are still needed.
    """

    module: str | None
    device: str
    meeting: Meeting
    life: int
    lives: tuple[int, ...]

    def enter(self) -> None:
        """Make the world of the life the current one, and leave those that are not needed any more.

        A world is left by the call after the last one in it: then all ranks have ended there.
        """
        register_from(self.module)
        use_device(self.device)
        for life in [life for life in _worlds if life not in self.lives]:
            _leave(_worlds.pop(life))
        if self.life not in _worlds:
            _worlds[self.life] = World()
            watch_world(_worlds[self.life])
        use(_worlds[self.life])


#: The worlds of this process, by life.
_worlds: dict[int, World] = {}


def in_world(place: Place, function: FunctionName, args: tuple[Any, ...]) -> Any:
    """Run a function in a world of this process, which is made if need be."""
    place.enter()
    if not dist.is_initialized():
        place.meeting.join(from_environment().rank)
    return function.find()(*args)


def outside(place: Place, function: FunctionName, args: tuple[Any, ...]) -> Any:
    """Run a function in a world without a default group."""
    place.enter()
    return function.find()(place.meeting, from_environment().rank, *args)


def _leave(world: World) -> None:
    use(world)
    if dist.is_initialized():
        with suppress(DistError):
            dist.destroy_process_group()


def _leave_all() -> None:
    for world in _worlds.values():
        _leave(world)


before_exit(_leave_all)
