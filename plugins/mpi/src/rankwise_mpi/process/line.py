"""`Line`: the communicator over which a store and its clones reach the ranks that keep values."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from mpi4py import MPI

from rankwise.backends import Deadline
from rankwise.errors import DistStoreError
from rankwise_mpi.process.base import Steps, duplicate_steps
from rankwise_mpi.process.process import Process
from rankwise_mpi.process.waiting import wait_until

#: MPI_Finalize, which follows, would wait no less.
_FOREVER_S = 1e9


class Line:
    """A communicator that is made on first use, by all ranks, and is not used any more when MPI is finalised.

    Args:
        process: MPI in this process.
        serve: What a rank that keeps values does over and over; it tells whether there was anything to do.
        longest_pause_s: How seldom that may be.
    """

    def __init__(self, process: Process, serve: Callable[[], bool], longest_pause_s: float) -> None:
        self._process = process
        self._serve, self._longest_pause_s = serve, longest_pause_s
        self._comm: MPI.Intracomm | None = None
        self._steps: Steps[MPI.Intracomm] | None = None
        self._opening = threading.Lock()
        self._lock = threading.Lock()  # entered itself, see `rankwise_mpi.process.engine`
        self._changed = threading.Condition(self._lock)
        self._calls, self._ended = 0, False

    def opened(self, timeout_s: float) -> MPI.Intracomm:
        """Return the communicator; the first time, all ranks of the job come together for it."""
        with self._opening:
            if self._comm is None:
                deadline = Deadline(timeout_s)
                base = self._process.base(timeout_s)
                if self._steps is None:
                    self._steps = Steps(duplicate_steps(base), f"init_process_group on rank {self._process.rank}")
                self._comm = self._steps.finish(deadline.remaining())
                self._process.before_finalising(self._part)
                self.hurry()
            return self._comm

    def hurry(self) -> None:
        """Have the progress thread look for requests soon, and often for a while."""
        self._process.engine.add(self._serve, self._longest_pause_s)

    @contextlib.contextmanager
    def call(self, timeout_s: float) -> Iterator[MPI.Intracomm]:
        """Yield the communicator, and keep MPI from being finalised within the block.

        Raises:
            DistStoreError: MPI has been finalised, or is about to be.
        """
        with self._lock:
            if self._ended:
                raise DistStoreError("the store of the job has ended with MPI, which has been finalised")
            self._calls += 1
        try:
            yield self.opened(timeout_s)
        finally:
            with self._lock:
                self._calls -= 1
                self._changed.notify_all()

    def _part(self) -> None:
        """Return once all ranks are about to leave: the first to come may be the one that serves the others."""
        with self._lock:
            self._ended = True
            self._changed.wait_for(lambda: not self._calls)
        assert self._comm is not None
        parting = self._comm.Ibarrier()
        with contextlib.suppress(MPI.Exception):  # somebody has died: there is nobody to wait for
            wait_until(parting.Test, _FOREVER_S, lambda: None)
