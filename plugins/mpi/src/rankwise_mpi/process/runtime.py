"""What MPI knows about this process before any rendezvous: rank, size, and a store over MPI."""

from __future__ import annotations

from functools import cache

from rankwise.backends import Runtime
from rankwise.store import PrefixStore, Store
from rankwise_mpi.process.process import Process, process

__all__ = ["runtime"]


def runtime(timeout_s: float) -> Runtime:
    """Initialise MPI if nobody has, and return rank, size and a store for one life of the default group.

    Below MPI_THREAD_MULTIPLE there is no thread that could serve a store, and so there is none.

    Args:
        timeout_s: How long the other ranks may take to initialise MPI.
    """
    here = process(timeout_s)
    if here.size == 1 or not here.multiple:
        return Runtime(here.rank, here.size, None)
    return Runtime(here.rank, here.size, _lives(here).next())


class _Lives:
    """The stores of the lives of the default group, one after the other; all ranks count alike."""

    def __init__(self, here: Process) -> None:
        from rankwise_mpi.process.store import MpiStore

        self._here = here
        self._store = here.notes = MpiStore(here)
        self._count = 0

    def next(self) -> Store:
        """Return the store of the next life, and drop what is left of the one before the last."""
        self._count += 1
        self._here.life = f"life-{self._count}"
        self._store.forget(f"life-{self._count - 2}/")
        return PrefixStore(self._here.life, self._store)


@cache
def _lives(here: Process) -> _Lives:
    return _Lives(here)
