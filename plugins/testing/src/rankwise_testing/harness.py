"""`run_ranks` and `RankPool`: a function on many processes, each of which is a rank."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, TypeVar

from rankwise.errors import DistNetworkError, DistTimeoutError, GroupAbortedError, PeerDiedError
from rankwise.kits import Deadline, Timeout, seconds
from rankwise_testing.messages import Task
from rankwise_testing.origins import Origin
from rankwise_testing.processes import Processes

T = TypeVar("T")

#: How long the other ranks may take to end once one has failed and the groups were aborted.
_GRACE_S = 3.0
_START_S = 60.0

#: What ranks raise because another has failed.
_CONSEQUENCES = (GroupAbortedError, PeerDiedError, DistNetworkError)


class RankFailedError(RuntimeError):
    """A function has failed on some ranks.

    Attributes:
        rank: The rank that failed first; its error is the cause.
        errors: The errors of all ranks that failed.
    """

    def __init__(self, message: str, rank: int, errors: Mapping[int, BaseException]) -> None:
        super().__init__(message, rank, errors)
        self.rank = rank
        self.errors = dict(errors)

    def __str__(self) -> str:
        return str(self.args[0])


class RankPool:
    """Processes that stand ready to run functions, one rank each.

    They are started by the first `run`, and started again after one that left them in an unknown state.
    """

    def __init__(
        self, size: int, *, launch: Sequence[str] = (), env: Mapping[str, str] | None = None, fork: bool = True
    ) -> None:
        """Make a pool; nothing is started yet.

        Args:
            size: Number of ranks.
            launch: The command that starts them, such as ("mpiexec", "-n", "{size}"); if empty they are started
                directly, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.
            env: Variables to set; `{rank}` in a value stands for the rank.
            fork: Fork ranks that are started directly from a process that has loaded rankwise and its backends; not
                where functions change what these find as they are loaded.
        """
        if size < 1:
            raise ValueError(f"a pool needs at least one rank, not {size}")
        self.size = size
        self._launch, self._env = tuple(launch), dict(env or {})
        self._processes: Processes | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._origin = Origin(fork)
        weakref.finalize(self, self._origin.close)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<RankPool: {self.size} ranks as processes, {'started' if self._processes else 'not started'}>"

    def __enter__(self) -> RankPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self,
        function: Callable[..., T],
        *args: Any,
        timeout: Timeout = 60.0,
        size: int | None = None,
        doomed: Collection[int] = (),
    ) -> list[T]:
        """Run `function(*args)` on every rank, and return what each returned.

        Args:
            function: A function at the top level of a module.
            *args: Its arguments; they and the results are pickled.
            timeout: How long it may take.
            size: Run on the first so many ranks only.
            doomed: Ranks whose process may die; that is no failure, and their result is None.

        Raises:
            RankFailedError: It raised on a rank, whose error and traceback are the cause. The groups of the others
                were aborted; ranks that did not end by that were killed.
            DistTimeoutError: Some ranks did not return; the message shows the stacks of all.
        """
        __tracebackhide__ = True  # the rank's own traceback says more
        task, timeout_s = Task.of(function, args), seconds(timeout)
        with self._lock:
            run = _Run(self._ready(), size or self.size, doomed)
            try:
                return run.finish(task, timeout_s)
            finally:
                sys.stdout.write(run.processes.new_output())
                if run.pending or run.died:  # a rank is gone, or nobody knows what it is doing
                    self._kill()

    def close(self, timeout: Timeout = 10.0) -> None:
        """End the processes; those that do not end in time are killed."""
        with self._lock:
            if self._processes is not None:
                self._processes.close(seconds(timeout))
            self._kill()
            self._origin.close()

    def _ready(self) -> Processes:
        if self._processes is None:
            self._processes = Processes(self.size, self._launch, self._env, _START_S, self._origin)
            self._finalizer = weakref.finalize(self, self._processes.kill)
        return self._processes

    def _kill(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._processes = self._finalizer = None


class _Run:
    """One run of a function: who has answered what."""

    def __init__(self, processes: Processes, size: int, doomed: Collection[int]) -> None:
        self.processes, self._doomed = processes, doomed
        self.pending: dict[Connection[Any, Any], int] = dict(
            zip(processes.connections[:size], range(size), strict=True)
        )
        self.died = False
        self._last_lines = ""
        self._results: list[Any] = [None] * size
        self._errors: dict[int, BaseException] = {}

    def finish(self, task: Task, timeout_s: float) -> list[Any]:
        """Hand out the task, and wait for all answers; for a little while only once a rank has failed."""
        __tracebackhide__ = True
        for connection in list(self.pending):
            self._guarded(connection, lambda c: c.send(task))
        deadline = Deadline(timeout_s)
        while self.pending and not self._errors:
            if not self._answers(deadline):
                raise DistTimeoutError(self._late(timeout_s))
        if self._errors:
            self._stop_others()
            raise self._failure() from next(iter(self._first().values()))
        return self._results

    def _answers(self, deadline: Deadline) -> bool:
        """Take what answers there are; tell whether one came in time."""
        ready = wait(list(self.pending), deadline.remaining())
        for connection in ready:
            self._guarded(connection, self._take)  # type: ignore[arg-type]
        return bool(ready)

    def _take(self, connection: Connection[Any, Any]) -> None:
        outcome = connection.recv()
        rank = self.pending.pop(connection)
        error = outcome.error()
        if error is None:
            self._results[rank] = outcome.result()
        else:
            self._errors[rank] = error

    def _guarded(self, connection: Connection[Any, Any], action: Callable[[Connection[Any, Any]], object]) -> None:
        """Do something with a connection; if it is broken, the process has died."""
        try:
            action(connection)
        except (EOFError, OSError):
            rank = self.pending.pop(connection)
            self.died = True
            if rank in self._doomed:
                return
            self._errors[rank] = PeerDiedError(rank, "this host", self.processes.end_of(rank))
            self._last_lines = self._last_lines or self.processes.last_lines(rank)

    def _stop_others(self) -> None:
        rank, error = next(iter(self._errors.items()))
        for connection in list(self.pending):
            with suppress(OSError):
                connection.send(f"after {type(error).__name__} on rank {rank}: {error}")
        deadline = Deadline(_GRACE_S)
        while self.pending and self._answers(deadline):
            pass

    def _first(self) -> dict[int, BaseException]:
        """Return the errors in the order in which they came, without those that are consequences of others."""
        own = {rank: error for rank, error in self._errors.items() if not isinstance(error, _CONSEQUENCES)}
        died = {rank: error for rank, error in self._errors.items() if error.__cause__ is None}
        return own or died or self._errors

    def _failure(self) -> RankFailedError:
        rank, error = next(iter(self._first().items()))
        size = len(self._results)
        stuck = sorted(self.pending.values())
        places = self.processes.stacks(stuck) if stuck else ""
        return RankFailedError(
            f"rank {rank} of {size} failed: {type(error).__name__}: {error}{self._last_lines}{places}",
            rank,
            self._errors,
        )

    def _late(self, timeout_s: float) -> str:
        ranks = sorted(self.pending.values())
        names = ", ".join(map(str, ranks))
        everyone = range(len(self._results))
        return (
            f"rank{'s' * (len(ranks) > 1)} {names} of {len(everyone)} did not return within {timeout_s:g} s"
            f"{self.processes.stacks(everyone)}"
        )


def run_ranks(
    function: Callable[..., T],
    size: int,
    *args: Any,
    timeout: Timeout = 60.0,
    env: Mapping[str, str] | None = None,
    launch: Sequence[str] = (),
    fork: bool = True,
) -> list[T]:
    """Run `function(*args)` on `size` fresh processes, and return what each rank returned; see `RankPool`."""
    with RankPool(size, launch=launch, env=env, fork=fork) as pool:
        return pool.run(function, *args, timeout=timeout)
