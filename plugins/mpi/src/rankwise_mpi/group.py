"""`MpiGroup`: what the messages and the collectives of one group on MPI stand on: works, waits, failures, the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from mpi4py import MPI

from rankwise.backends import Array, Communicator, Context, Deadline, Work
from rankwise.errors import DistError, DistTimeoutError, GroupAbortedError
from rankwise_mpi import cuda, ulfm
from rankwise_mpi.counts import largest_count
from rankwise_mpi.failures import translate
from rankwise_mpi.notices import Notices
from rankwise_mpi.pages import NOTICE_TAG, Pages
from rankwise_mpi.receives import Receives
from rankwise_mpi.waiting import wait_until
from rankwise_mpi.whereabouts import NOTE_AFTER_S, Whereabouts
from rankwise_mpi.works import Pending, ReceiveWork, Testable

if TYPE_CHECKING:
    from rankwise_mpi.process import Process

__all__ = ["MpiGroup"]


#: How long the progress thread is waited for before a group's communicators are given back.
_LAST_RUN_S = 1.0


class MpiGroup(Communicator):
    """One group on MPI, without its operations.

    Args:
        context: What the core says of the group.
        process: MPI in this process.
        pages: The group's own communicators.
    """

    def __init__(self, context: Context, process: Process, pages: Pages) -> None:
        super().__init__(context)
        self._process = process
        self._pages = pages
        self._comm = pages.first
        self._on_device = "cuda" in context.devices and cuda.is_cuda_aware()
        #: Up to this one, tags lie as they are on `mpi`.
        self.last_tag = pages.last_tag
        #: The largest count of one call.
        self.limit = largest_count()
        #: Whether pending operations make progress by themselves.
        self.progresses = process.multiple
        #: To look that often costs nothing yet.
        self.first_looks = range(process.first_looks)
        self.receives = Receives(pages.place)
        self._notices = Notices(*pages.place(NOTICE_TAG), context.name)
        me = context.global_ranks[context.rank]
        prefix = f"{process.life}/at/{context.name}"
        self._whereabouts = Whereabouts(process.store, prefix, me, context.global_ranks)
        self._pending: dict[Pending, None] = {}
        #: Whether this rank is waiting for others before it makes the call of MPI that comes next.
        self._meeting = False
        process.watch(self)

    @property
    def mpi(self) -> MPI.Intracomm:
        """The communicator of MPI that collectives run on."""
        return self._comm

    # ------------------------------------------------------------------ the end

    def drain(self, timeout_s: float) -> None:
        """Wait until everything that was issued has ended, receives that no message has met apart."""
        deadline = Deadline(timeout_s)
        super().drain(timeout_s)
        for work in list(self._pending):
            if not isinstance(work, ReceiveWork) and not self.wait_until(work.poll, deadline.remaining()):
                raise self.late("drain", timeout_s)

    def close(self) -> None:
        """Give the communicators back, unless they may still be in use: the group has failed, or a callback lasts."""
        unused = self._process.engine.remove(self._progress, _LAST_RUN_S)
        for work in list(self._pending):
            work.cancel()
        if unused and self.failure is None and not MPI.Is_finalized():
            self._pages.free()

    def abort(self, error: DistError) -> None:
        """End what is pending here, and tell the peers."""
        self.let_go(error)
        if self.size == 1 or not self._process.may_call():
            return
        if self._process.survives_deaths:
            ulfm.revoke(self._comm)
            return
        try:
            self._process.keep(*self._notices.tell(str(error)))
        except MPI.Exception:
            return  # the peers will notice by their own deadlines

    def let_go(self, error: DistError) -> None:
        """End what is pending here, and call MPI no more."""
        if self.failure is None:
            self.failure = error
        for work in list(self._pending):
            work.give_up()
            work.end(error)

    # ------------------------------------------------------------------ for the works

    def where(self, what: str) -> str:
        """Return an operation with the group and rank that it is issued on, for messages."""
        return f"{what} on group {self.context.name!r}, rank {self.context.global_ranks[self.rank]}"

    def late(self, what: str, timeout_s: float, number: int = 0) -> DistTimeoutError:
        """Return the error of an operation that has not ended in time; a collective has a number."""
        missing = f"; {self._whereabouts.missing(number)}" if number else ""
        return DistTimeoutError(f"{self.where(what)}: not done after {timeout_s:g} s{missing}")

    def failed(self, what: str, error: MPI.Exception) -> DistError:
        """Return an error of MPI in our error tree."""
        died = self._process.who_died(self._comm, self.context.global_ranks)
        return translate(error, self.where(what), died)

    def wait_until(self, test: Callable[[], bool], timeout_s: float) -> bool:
        """Return true as soon as `test()` is, or false when the time-out has passed."""
        for _ in range(self._process.looks):
            if test():
                return True
            if self.receives.ages:
                break  # what others are waiting for may depend on them
        with self._process.engine:
            return wait_until(test, timeout_s, self._attend)

    def wait_seen(self, test: Callable[[], bool], timeout_s: float, what: str, number: int) -> bool:
        """Wait as `wait_until` does, and let the others know where if it is a collective and takes time."""
        if number and timeout_s > NOTE_AFTER_S:
            if self.wait_until(test, NOTE_AFTER_S):
                return True
            self._whereabouts.note(number, what)
            timeout_s -= NOTE_AFTER_S
        return self.wait_until(test, timeout_s)

    def forget(self, work: Pending) -> None:
        """Hear that a work has ended."""
        self._pending.pop(work, None)
        if isinstance(work, ReceiveWork):
            self.receives.withdraw(work)

    def abandon(self, request: Testable | None, buffers: Any) -> None:
        """Keep what MPI may still read or write until it has ended; for good if nobody can tell when that is."""
        self._process.keep(request, buffers)

    # ------------------------------------------------------------------ for the operations

    def _started(self, work: Pending) -> Work:
        """Let a work make progress from now on."""
        if self.failure is not None:
            work.end(self.failure)
        self._pending[work] = None
        if not work.poll() and self.progresses:
            self._process.engine.add(self._progress)
        if work.is_done():
            self._pending.pop(work, None)
        return work

    def _progress(self) -> bool:
        """Look at everything that is pending; tell whether anything has ended. The progress thread calls this."""
        pending = list(self._pending)
        if not pending:
            self._process.engine.remove(self._progress)
            return False
        try:
            self._attend()
        except DistError:
            return True
        return any([work.poll() for work in pending])

    def look_on(self, what: str, request: Testable, buffers: Any, timeout_s: float, number: int = 0) -> None:
        """Wait for a request of a synchronous call; if that fails, so does the group."""
        try:
            if self.wait_seen(request.Test, timeout_s, what, number):
                return
            error: DistError = self.late(what, timeout_s, number)
        except DistError as failure:
            error = failure
        self.abandon(request, buffers)
        raise self.fail(error)

    def stopped(self, what: str, request: Testable | None, buffers: Any, stop: BaseException) -> NoReturn:
        """Fail the group with what has stopped a call half-way, and raise it."""
        if isinstance(stop, MPI.Exception):
            raise self._fatal(what, stop) from stop
        self._break_off(what, request, buffers, stop)
        raise stop

    def _break_off(self, what: str, request: Testable | None, buffers: Any, stop: BaseException) -> None:
        """Fail the group, as this rank was interrupted in a call and nobody knows how far that had come."""
        if self.failure is None:
            self.abandon(request, buffers)
            self.fail(GroupAbortedError(f"{self.where(what)} was broken off by {type(stop).__name__} on this rank"))

    def _attend(self) -> None:
        """See to what concerns the whole group while something waits: failures, notices, receives."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        for work in list(self._pending):
            # A callback may issue the next collective, which must not come before one that is yet to be made.
            if isinstance(work, ReceiveWork) and not (self._meeting and work.has_callbacks):
                work.poll()
        if self.size == 1:
            return
        try:
            said = self._notices.heard()
        except MPI.Exception as error:
            raise self._fatal("a call", error) from error
        if said is not None:
            self._give_up(said)

    def _attend_for_good(self) -> None:
        """Hear out a notice that has come, and end the group if it is meant."""
        said = self._notices.heard(at_once=True)
        if said is not None:
            self._give_up(said)

    def _give_up(self, said: str) -> NoReturn:
        error = GroupAbortedError(f"group {self.context.name!r} was given up by another rank: {said}")
        raise self.fail(error)

    def _fatal(self, what: str, error: MPI.Exception) -> DistError:
        """Fail the group with an error of MPI, and return it in our error tree."""
        return self.fail(self.failed(what, error))

    def _ready(self, array: Array) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._on_device and type(array) is not np.ndarray:
            cuda.synchronize()
