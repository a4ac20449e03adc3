"""`local_world`: collective code on threads, each of which is a rank with a world of its own."""

from __future__ import annotations

import contextvars
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import rankwise as dist
from rankwise.backends import Deadline, Timeout, seconds, start_thread
from rankwise.errors import DistError, DistTimeoutError, GroupAbortedError
from rankwise.kits import HashStore, World, leave_everything, use

T = TypeVar("T")

#: How long the other ranks may take to end once one has failed and the groups were aborted.
_GRACE_S = 5.0


class LocalWorld:
    """Some ranks that stand ready to run functions, as often as asked.

    Attributes:
        run_s: How long each run may take.
    """

    def __init__(self, size: int, backend: str, timeout_s: float, run_s: float | None = None) -> None:
        if size < 1:
            raise ValueError(f"a world needs at least one rank, not {size}")
        self.size = size
        self._backend, self._timeout_s = backend, timeout_s
        self.run_s = timeout_s if run_s is None else run_s
        self._worlds: list[World] = []

    def __repr__(self) -> str:
        return f"<LocalWorld: {self.size} ranks as threads, backend {self._backend}>"

    def run(self, function: Callable[..., T], *args: Any) -> list[T]:
        """Run `function(*args)` on every rank, and return what each returned.

        Inside, `rankwise.get_rank()` tells which rank it is. If it raises on a rank, all groups are aborted so that the
        other ranks end too, and that error is raised here; from Python 3.11 a note names the rank. The
        next `run` begins with a new world.

        Raises:
            DistTimeoutError: Some ranks hang; the message shows where.
        """
        __tracebackhide__ = True
        if not self._worlds:
            self._begin()
        try:
            return self._run(function, args)
        except BaseException:
            with suppress(DistError):
                self.end()
            raise

    def end(self) -> None:
        """Destroy whatever groups there still are, outside of the world too."""
        worlds, self._worlds = self._worlds, []
        if worlds:
            _Ranks(worlds).run(leave_everything, (), self._timeout_s)

    def _begin(self) -> None:
        store = HashStore()
        worlds = [World() for _ in range(self.size)]

        def begin() -> None:
            rank = int(threading.current_thread().name.removeprefix("rank "))
            timeout_s = self._timeout_s
            dist.init_process_group(self._backend, store=store, rank=rank, world_size=self.size, timeout=timeout_s)

        _Ranks(worlds).run(begin, (), self._timeout_s)
        self._worlds = worlds

    def _run(self, function: Callable[..., T], args: tuple[Any, ...]) -> list[T]:
        __tracebackhide__ = True
        results: list[T] = _Ranks(self._worlds).run(function, args, self.run_s)
        return results


@contextmanager
def local_world(size: int, *, backend: str = "local", timeout: Timeout = 60.0) -> Iterator[LocalWorld]:
    """Make a world of `size` ranks in this process, for the time of a `with` block.

    Args:
        size: Number of ranks.
        backend: A backend whose ranks can be threads of one process, such as "local" or one that `register_chaos` made.
        timeout: The group's time-out, and how long each `run` may take.
    """
    world = LocalWorld(size, backend, seconds(timeout))
    try:
        world.run(bool)  # the group is there when the block begins
        yield world
    finally:
        world.end()


class _Ranks:
    """One run: a thread for each rank, and what became of it."""

    def __init__(self, worlds: list[World]) -> None:
        self._worlds = worlds
        self._results: list[Any] = [None] * len(worlds)
        self._errors: dict[int, BaseException] = {}
        self._lock = threading.RLock()  # entered itself, see `rankwise.backends.IssueOrder`
        self._changed = threading.Condition(self._lock)
        self._pending = set(range(len(worlds)))

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float) -> list[Any]:
        __tracebackhide__ = True
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._one, rank, function, args),
                name=f"rank {rank}",
                daemon=True,
            )
            for rank in range(len(self._worlds))
        ]
        for thread in threads:
            start_thread(thread)
        try:
            self._wait(timeout_s)
        except BaseException as error:  # Control-C, too
            self._abort(f"after {type(error).__name__} in the main thread")
            raise
        stuck = [thread for rank, thread in enumerate(threads) if rank in self._pending]
        places = "".join(_place(thread) for thread in stuck)
        if stuck:
            self._abort("as the test ran out of time")
        if self._errors:
            _raise_first(self._errors, places)
        if stuck:
            names = ", ".join(thread.name for thread in stuck)
            raise DistTimeoutError(f"{names} of {len(threads)} did not return within {timeout_s:g} s{places}")
        for thread in threads:
            thread.join()
        return self._results

    def _one(self, rank: int, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        use(self._worlds[rank])
        try:
            self._results[rank] = function(*args)
        except BaseException as error:  # it is raised again where it can be seen
            with self._lock:
                self._errors[rank] = error
            self._abort(f"after {type(error).__name__} on rank {rank}: {error}")
        with self._lock:
            self._pending.discard(rank)
            self._changed.notify_all()

    def _wait(self, timeout_s: float) -> None:
        """Wait until all have ended, or the time is up; a little while only once one has failed."""
        deadline = Deadline(timeout_s)
        with self._lock:
            self._changed.wait_for(lambda: self._errors or not self._pending, deadline.remaining())
            if self._errors:
                self._changed.wait_for(lambda: not self._pending, min(_GRACE_S, deadline.remaining()))

    def _abort(self, reason: str) -> None:
        for world in self._worlds:
            world.stop(reason)


def _raise_first(errors: dict[int, BaseException], places: str) -> None:
    """Raise the error that came first: those of ranks that were stopped by it say less."""
    __tracebackhide__ = True
    own = {rank: error for rank, error in errors.items() if not isinstance(error, GroupAbortedError)} or errors
    rank, error = next(iter(own.items()))
    if hasattr(error, "add_note"):  # from Python 3.11
        error.add_note(f"(raised on rank {rank})" + (f"\nother ranks wait:{places}" if places else ""))
    raise error


def _place(thread: threading.Thread) -> str:
    """Return the stack of a thread, as text."""
    frame = None if thread.ident is None else sys._current_frames().get(thread.ident)
    lines = [] if frame is None else traceback.format_stack(frame)
    return f"\n{thread.name} is here:\n{''.join(lines)}".rstrip()
