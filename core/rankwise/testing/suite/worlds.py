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
        if size not in self._worlds:
            self._worlds[size] = LocalWorld(size, self.full_name, _TIMEOUT_S)
        return self._run(self._worlds[size], function, args)

    def run_alone(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        world = LocalWorld(size, self.full_name, _TIMEOUT_S)
        try:
            return self._run(world, function, args)
        finally:
            with suppress(DistError):
                world.end()

    def run_outside(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
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
        life = self._life.setdefault(size, next(self._names))
        return self._run(size, in_world, life, False, FunctionName.of(function), args)

    def run_alone(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        return self._run(size, in_world, next(self._names), True, FunctionName.of(function), args)

    def run_outside(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        return self._run(size, outside, next(self._names), FunctionName.of(function), args)

    def renew(self) -> None:
        # Whoever was told to stop has given up all its worlds.
        self._life.clear()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._directory.cleanup()

    def _run(self, size: int, runner: Callable[..., Any], life: int, *args: Any) -> list[Any]:
        # A world of a runtime is as large as the runtime has made it; others can take some of the processes.
        number = size if self._has_runtime or self._launch else MAX_SIZE
        if number not in self._pools:
            self._pools[number] = RankPool(number, launch=self._launch, env=self._env)
        where = None if self._has_runtime else f"file://{self._directory.name}/{life}"
        meeting = Meeting(self.full_name, size, where)
        pool = self._pools[number]
        try:
            return pool.run(runner, self.module, self.device, meeting, life, *args, timeout=_RUN_S, size=size)
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


#: The worlds of this process, by size, and the life that each is in.
_worlds: dict[int, tuple[int, World]] = {}


def in_world(
    module: str | None,
    device: str,
    meeting: Meeting,
    life: int,
    alone: bool,
    function: FunctionName,
    args: tuple[Any, ...],
) -> Any:
    """Run a function in the world of a life on this process, which is made if need be."""
    world = _world_of(meeting.size, life, alone)
    _enter(world, device, module)
    if not dist.is_initialized():
        meeting.join(from_environment().rank)
    try:
        return function.find()(*args)
    finally:
        if alone:
            _leave(world)


def outside(
    module: str | None, device: str, meeting: Meeting, life: int, function: FunctionName, args: tuple[Any, ...]
) -> Any:
    """Run a function in a world without a default group."""
    world = World()
    _enter(world, device, module)
    try:
        return function.find()(meeting, from_environment().rank, *args)
    finally:
        _leave(world)


def _world_of(size: int, life: int, alone: bool) -> World:
    if alone:
        return World()
    if size in _worlds and _worlds[size][0] != life:
        _leave(_worlds.pop(size)[1])
    if size not in _worlds:
        _worlds[size] = life, World()
    return _worlds[size][1]


def _enter(world: World, device: str, module: str | None) -> None:
    register_from(module)
    use(world)
    use_device(device)
    watch_world(world)


def _leave(world: World) -> None:
    use(world)
    if dist.is_initialized():
        with suppress(DistError):
            dist.destroy_process_group()


def _leave_all() -> None:
    for _, world in _worlds.values():
        _leave(world)


before_exit(_leave_all)
