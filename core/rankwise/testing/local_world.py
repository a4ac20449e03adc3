"""`local_world`: collective code on threads, each of which is a rank with a world of its own."""

from __future__ import annotations

import contextvars
import faulthandler
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rankwise.deadline import Deadline, Timeout, seconds
from rankwise.errors import DistTimeoutError, GroupAbortedError
from rankwise.lifecycle import destroy_process_group, init_process_group, is_initialized
from rankwise.store import HashStore
from rankwise.world import World, current, use

__all__ = ["LocalWorld", "local_world"]

T = TypeVar("T")


class LocalWorld:
    """Some ranks that stand ready to run functions."""

    def __init__(self, size: int, backend: str, timeout_s: float) -> None:
        self.size = size
        self._backend, self._timeout_s = backend, timeout_s
        self._store = HashStore(timeout_s)
        self._worlds = [World() for _ in range(size)]

    def run(self, function: Callable[..., T], *args: Any) -> list[T]:
        """Run `function(*args)` on every rank, and return what each returned.

        Inside, `rankwise.get_rank()` tells which rank it is. If it raises on a rank, the group is aborted so that
        the others end too, and that error is raised here.

        Raises:
            DistTimeoutError: Some ranks stand still; the stacks of all are printed.
        """
        results: list[Any] = [None] * self.size
        errors: dict[int, BaseException] = {}

        def one_rank(rank: int) -> None:
            use(self._worlds[rank])
            try:
                results[rank] = function(*args)
            except BaseException as error:  # it is raised again where it can be seen
                errors[rank] = error
                self._stop_others(rank, error)

        threads = [
            threading.Thread(target=contextvars.Context().run, args=(one_rank, rank), name=f"rank {rank}", daemon=True)
            for rank in range(self.size)
        ]
        for thread in threads:
            thread.start()
        self._join(threads)
        if errors:
            _raise_first(errors)
        return results

    def begin(self) -> None:
        """Make the default group on every rank."""

        def begin() -> None:
            rank = next(rank for rank, world in enumerate(self._worlds) if world is current())
            init_process_group(
                self._backend, store=self._store, rank=rank, world_size=self.size, timeout=self._timeout_s
            )

        self.run(begin)

    def end(self) -> None:
        """Destroy whatever groups there still are."""

        def end() -> None:
            if is_initialized():
                destroy_process_group()

        self.run(end)

    def _stop_others(self, rank: int, error: BaseException) -> None:
        for group in list(self._worlds[rank].groups.values()):
            group.abort(f"after {type(error).__name__}: {error}")

    def _join(self, threads: list[threading.Thread]) -> None:
        deadline = Deadline(self._timeout_s)
        for thread in threads:
            thread.join(deadline.remaining())
        stuck = [thread.name for thread in threads if thread.is_alive()]
        if stuck:
            faulthandler.dump_traceback(sys.__stderr__ or 2)
            raise DistTimeoutError(f"{', '.join(stuck)} did not return within {self._timeout_s:g} s")


@contextmanager
def local_world(size: int, *, backend: str = "local", timeout: Timeout = 60.0) -> Iterator[LocalWorld]:
    """Make a world of `size` ranks in this process, for the time of a `with` block.

    Args:
        size: Number of ranks.
        backend: A backend whose ranks can be threads of one process, such as "local" or one wrapped by `chaos`.
        timeout: The group's time-out, and how long each `run` may take.
    """
    world = LocalWorld(size, backend, seconds(timeout))
    world.begin()
    try:
        yield world
    finally:
        world.end()


def _raise_first(errors: dict[int, BaseException]) -> None:
    """Raise the error that came first: those of ranks that were stopped by it say less."""
    own = {rank: error for rank, error in errors.items() if not isinstance(error, GroupAbortedError)} or errors
    rank, error = min(own.items())
    if hasattr(error, "add_note"):  # from Python 3.11
        error.add_note(f"(raised on rank {rank})")
    raise error
