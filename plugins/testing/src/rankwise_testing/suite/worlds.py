"""Where the suite's ranks live: on threads of this process, on processes, or on processes of another launcher."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from itertools import count
from typing import Any

import rankwise as dist
from rankwise.backends import IN_THREADS
from rankwise.errors import DistError
from rankwise.kits import OPS, BackendSpec, Deadline, HashStore, Support, registry
from rankwise_local import LocalWorld
from rankwise_testing.harness import RankPool
from rankwise_testing.messages import FunctionName
from rankwise_testing.suite.arrays import Terms, use_terms, why_not
from rankwise_testing.suite.place import TIMEOUT_S, JoinPlan, RankTask, in_world, outside

#: The largest world of most tests.
MAX_SIZE = 4
#: Sizes of the worlds in which algorithms are chosen by the number of ranks: odd ones, on either side of eight.
LARGE_SIZES = (5, 7, 9)

#: Sizes for a few quick cases: even ones, a prime beyond ten, and powers of two beyond the usual.
MORE_SIZES = (6, 8, 10, 11, 16)
#: The operations that reduce.
REDUCING = ("all_reduce", "reduce", "reduce_scatter")

#: How long what a test runs may take.
RUN_S = 60.0
#: What it may take once something has stood still.
_SHORT_RUN_S = TIMEOUT_S + 5.0
#: What it gets in any case.
_LEAST_RUN_S = 2.0


class Ranks(ABC):
    """Runs functions on worlds of several sizes."""

    def __init__(self, backend: str, terms: Terms, module: str | None, patience_s: float) -> None:
        self.backend, self.terms, self.device, self.module = backend, terms, terms.device, module
        self._patience_s = patience_s
        #: When all of it must have ended, and whether the last run was given up because of that alone.
        self.end: Deadline | None = None
        self.cut_short = False
        #: How many runs had to be given up, as their ranks did not return whatever their time-outs were.
        self.stood_still = 0
        #: The sizes of the worlds in which something has run to its end.
        self.sizes: set[int] = set()

    @property
    def run_s(self) -> float:
        """How long a run may take; less once one has hung, as the backend does not keep to its time-outs."""
        may_s = min(self._patience_s, _SHORT_RUN_S) if self.stood_still else self._patience_s
        return may_s if self.end is None else max(_LEAST_RUN_S, min(may_s, self.end.remaining()))

    @contextmanager
    def patient(self, times: float) -> Iterator[None]:
        """Allow runs more time, for many calls of which each has a time-out of its own."""
        self._patience_s *= times
        try:
            yield
        finally:
            self._patience_s /= times

    @contextmanager
    def noted(self, size: int) -> Iterator[None]:
        """Note the size of a world in which something runs to its end, or else whether that took all of its time."""
        deadline, self.cut_short = Deadline(self.run_s), False
        try:
            yield
            self.sizes.add(size)
        except BaseException:
            self.cut_short = deadline.expired() and self.end is not None and self.end.expired()
            self.stood_still += deadline.expired() and not self.cut_short
            raise

    @abstractmethod
    def run(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function on every rank of a world that other tests use too, and return what each returned."""

    @abstractmethod
    def run_alone(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function on a world of its own, which it may break."""

    @abstractmethod
    def run_outside(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run `function(meeting, rank, *args)` where there is no world yet."""

    def run_doomed(self, size: int, doomed: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function on a world of its own, in which the process of one rank dies, which returns None."""
        raise NotImplementedError

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

    def __init__(self, backend: str, terms: Terms, module: str | None, patience_s: float) -> None:
        super().__init__(backend, terms, module, patience_s)
        self._worlds: dict[int, LocalWorld] = {}

    def run(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        __tracebackhide__ = True
        if size not in self._worlds:
            self._worlds[size] = LocalWorld(size, self.full_name, TIMEOUT_S)
        return self._run(self._worlds[size], function, args)

    def run_alone(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        __tracebackhide__ = True
        world = LocalWorld(size, self.full_name, TIMEOUT_S)
        try:
            return self._run(world, function, args)
        finally:
            with suppress(DistError):
                world.end()

    def run_outside(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        __tracebackhide__ = True
        meeting = JoinPlan(self.full_name, size, HashStore())

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
            use_terms(self.terms)  # in a context of its own, which the threads inherit
            return world.run(function, *args)

        world.run_s = self.run_s
        with self.noted(world.size):
            return copy_context().run(program)


class ProcessRanks(Ranks):
    """Ranks that are processes, started once for all tests."""

    def __init__(
        self,
        backend: str,
        terms: Terms,
        module: str | None,
        patience_s: float,
        launch: Sequence[str],
        env: Mapping[str, str],
    ) -> None:
        super().__init__(backend, terms, module, patience_s)
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

    def run_doomed(self, size: int, doomed: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        __tracebackhide__ = True
        try:
            return self._run(size, in_world, next(self._names), FunctionName.of(function), args, doomed=(doomed,))
        finally:
            self.renew()  # the pool starts anew

    def renew(self) -> None:
        # A process that was told to stop has given up all its worlds.
        self._life.clear()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._directory.cleanup()

    def _run(
        self, size: int, runner: Callable[..., Any], life: int, *args: Any, doomed: Collection[int] = ()
    ) -> list[Any]:
        __tracebackhide__ = True
        # A world of a runtime is as large as the runtime has made it; others can take some of the processes.
        number = size if self._has_runtime or self._launch else MAX_SIZE if size <= MAX_SIZE else MORE_SIZES[-1]
        if number not in self._pools:
            self._pools[number] = RankPool(number, launch=self._launch, env=self._env)
        where = None if self._has_runtime else f"file://{self._directory.name}/{life}"
        folder = os.path.join(self._directory.name, f"{life}-outside")
        os.makedirs(folder, exist_ok=True)
        meeting = JoinPlan(self.full_name, size, where, folder)
        place = RankTask(self.module, self.terms, meeting, life, (life, *self._life.values()))
        try:
            with self.noted(size):
                return self._pools[number].run(runner, place, *args, timeout=self.run_s, size=size, doomed=doomed)
        except BaseException:
            self.renew()
            raise


def make_ranks(
    spec: BackendSpec,
    device: str,
    launch: Sequence[str],
    env: Mapping[str, str],
    module: str | None,
    patience_s: float = RUN_S,
) -> Ranks:
    """Return where the ranks of a backend live."""
    launch, terms = tuple(launch) or spec.launch, _terms(spec, device)
    if launch == IN_THREADS:
        return ThreadRanks(spec.name, terms, module, patience_s)
    return ProcessRanks(spec.name, terms, module, patience_s, () if launch == ("processes",) else launch, env)


#: Dtypes for arrays of which a test could take any; the first that most operations take is taken.
_PLAIN = ("float32", "float64", "int32", "int64", "int16", "uint8", "int8", "float16", "uint32", "uint64", "complex64")


def _terms(spec: BackendSpec, device: str) -> Terms:
    """Choose from the table what the tests go by."""
    cells = {op: spec.capabilities.cell(op, device) for op in OPS if op != "barrier"}
    there = [cell for cell in cells.values() if cell.support is not Support.NO]
    makeable = [name for name in _PLAIN if not why_not(name, device)]

    def taken(name: str) -> int:
        return sum(cell.takes(name, "SUM" if op in REDUCING else None) for op, cell in cells.items() if cell in there)

    chosen = sorted(makeable or _PLAIN, key=lambda name: -taken(name))  # which keeps the order of equals
    return Terms(device, chosen[0], next((name for name in chosen[1:] if taken(name)), "int32"))
