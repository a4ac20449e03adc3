"""What MPI knows about this process before any rendezvous: rank, size, and a store over MPI."""

from __future__ import annotations

from functools import cache

from rankwise.backends import Runtime, Store
from rankwise_mpi.process.process import Process, process


def runtime(timeout_s: float) -> Runtime:
    """Initialise MPI if nobody has, and return rank, size and the store of the job.

    Below MPI_THREAD_MULTIPLE there is no thread that could serve a store, and so there is none.

    Args:
        timeout_s: How long the other ranks may take to initialise MPI.
    """
    here = process(timeout_s)
    return Runtime(here.rank, here.size, _store(here) if here.size > 1 and here.multiple else None, here.job)


@cache
def _store(here: Process) -> Store:
    from rankwise_mpi.process.store import MpiStore

    return MpiStore(here)
