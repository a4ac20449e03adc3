"""`Endpoint`: this rank's end of one group, on which its messages and collectives stand.

It knows what is pending and how long, how to wait so that everything that may end does, and whether the group has
failed. What guards what: each work has its own looker (`works`), the waiting receives their lock (`receives`), the
order of collectives its turn (`collectives.issuing`). The rest is single assignments and dictionary operations, which
are whole in Python; whatever is read twice in between may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic, monotonic_ns
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from mpi4py import MPI

from rankwise.backends import Array, Context, Deadline, aborted_by, anew, heed
from rankwise.errors import DistError, DistTimeoutError, GroupAbortedError, PeerDiedError
from rankwise_mpi.group.notices import Notices
from rankwise_mpi.group.pages import NOTICE_TAG, Pages
from rankwise_mpi.group.receives import Receives
from rankwise_mpi.group.whereabouts import NOTE_AFTER_S, Whereabouts
from rankwise_mpi.library import cuda, ulfm
from rankwise_mpi.library.counts import largest_count
from rankwise_mpi.library.failures import may_be_a_death, translate
from rankwise_mpi.library.requests import Testable
from rankwise_mpi.process.process import Process, life_of, ranks_in_mpi
from rankwise_mpi.process.waiting import wait_until

#: How long the progress thread is waited for before a group's communicators are given back.
_LAST_RUN_S = 1.0
#: For how long a rank that finds another gone waits to hear why.
_NOTICE_S = 1.0


class Operation(Protocol):
    """What has been issued and has not ended, as the endpoint sees it."""

    #: By when it must have ended.
    until: float
    #: Of a collective which of the group's it is, else 0.
    number: int

    def poll(self) -> bool:
        """Make progress, and tell whether it has ended."""

    def is_done(self) -> bool:
        """Tell whether it has ended, without looking again."""

    def end(self, error: DistError | None) -> None:
        """End it, badly if there is an error."""

    def give_up(self) -> bool:
        """Leave it to itself; tell whether the group is as good as before."""

    def cancel(self) -> bool:
        """Withdraw it if it is a receive that no message has met."""


AnOperation = TypeVar("AnOperation", bound=Operation)


class Endpoint:
    """This rank's end of one group.

    Args:
        context: What the core says of the group.
        process: MPI in this process.
        pages: The group's own communicators.
        fail: Makes the group unusable, and returns the error that all ranks raise; it calls `abort`.
    """

    def __init__(
        self, context: Context, process: Process, pages: Pages, fail: Callable[[DistError], DistError]
    ) -> None:
        self.context = context
        self.rank, self.size = context.rank, context.size
        #: Make the group unusable with an error; return the one that all ranks raise.
        self.fail = fail
        #: Why the group is unusable, if it is; calls raise it.
        self.failure: DistError | None = None
        self.pages = pages
        #: The communicator of MPI that collectives run on.
        self.mpi = pages.first
        self.is_openmpi, self.shares_cores = process.is_openmpi, process.shares_cores
        #: Whether arrays may lie on a device.
        self.on_device = "cuda" in context.devices and cuda.is_cuda_aware()
        #: The largest count of one call.
        self.limit = largest_count()
        #: Whether pending operations make progress by themselves.
        self.progresses = process.multiple
        #: To look that often costs nothing yet.
        self.first_looks = range(process.first_looks)
        self.receives = Receives(pages.place)
        #: Told for how many nanoseconds others were waited for, and whether by a message, after the first looks.
        self.on_wait: Callable[[int, bool], object] = _unnoted
        #: Return the members that have destroyed the group before a call of this number, as far as is known.
        self.destroyed_by: Callable[[int], Sequence[int]] = nobody
        #: Keep what MPI may still read or write, until it has ended.
        self.keep = process.keep
        self._process = process
        self._notices = Notices(*pages.place(NOTICE_TAG), f"{life_of(context.store)}/{context.name}")
        #: Where the members were last seen, and who has left.
        self.whereabouts = Whereabouts(context)
        self._pending: dict[Operation, None] = {}
        #: The asynchronous collectives that have not ended, as they were issued.
        self.collectives: dict[Operation, None] = {}

    # ------------------------------------------------------------------ the end

    def drain(self, timeout_s: float) -> None:
        """Wait until everything that was issued has ended, receives that no message has met apart."""
        deadline = Deadline(timeout_s)
        for work in list(self._pending):
            if self.failure is not None:
                return  # the group has been given up, and each call has said so
            if work not in self.receives.ages and not self.wait_until(partial(_polled, work), deadline.remaining()):
                raise self.late("drain", timeout_s)

    def close(self) -> None:
        """Give the communicators back, unless they may still be in use: the group has failed, or a callback lasts."""
        unused = self._process.engine.remove(self._progress, _LAST_RUN_S)
        for work in list(self._pending):
            work.cancel()
        if unused and self.failure is None and not MPI.Is_finalized():
            if self.context.runtime_ranks:  # members that are left out may still be using it
                self._process.retired.add(self.pages.each(), ranks_in_mpi(self.context))
            else:
                self.pages.free()

    def abort(self, error: DistError) -> None:
        """End what is pending here, and tell the peers."""
        self.let_go(error)
        if self.size == 1 or not self._process.may_call():
            return
        if self._process.survives_deaths:
            ulfm.revoke(self.mpi)
            return
        try:
            self._notices.tell(str(error), self.keep)
        except MPI.Exception:
            return  # the peers will notice by their own deadlines

    def let_go(self, error: DistError) -> None:
        """End what is pending here, and call MPI no more."""
        if self.failure is None:
            self.failure = error
        for work in list(self._pending):
            work.give_up()
            work.end(error)

    # ------------------------------------------------------------------ waiting

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
        """Wait as `wait_done` does for others to come to a collective, and note for how long."""
        began = monotonic_ns()
        try:
            return self.wait_done(test, timeout_s, what, number)
        finally:
            self.on_wait(monotonic_ns() - began, False)

    def wait_for_message(self, test: Callable[[], bool], timeout_s: float) -> bool:
        """Wait as `wait_until` does for others to send a message, and note for how long."""
        began = monotonic_ns()
        try:
            return self.wait_until(test, timeout_s)
        finally:
            self.on_wait(monotonic_ns() - began, True)

    def wait_done(self, test: Callable[[], bool], timeout_s: float, what: str, number: int) -> bool:
        """Wait as `wait_until` does, and let the others know where if it is a collective and takes time."""
        if number and timeout_s > NOTE_AFTER_S:
            if self.wait_until(test, NOTE_AFTER_S):
                return True
            self.whereabouts.note(number, what)
            timeout_s -= NOTE_AFTER_S
            return self.wait_until(lambda: test() or self.check_destroyed(number), timeout_s)
        return self.wait_until(test, timeout_s)

    def look_on(self, what: str, request: Testable, buffers: Any, timeout_s: float, number: int = 0) -> None:
        """Wait for a request of a synchronous call; if that fails, so does the group."""
        try:
            if self.wait_done(request.Test, timeout_s, what, number):
                return
            error: DistError = self.late(what, timeout_s, number)
        except DistError as failure:
            error = failure
        self.keep(request, buffers)
        raise self.fail(error)

    def started(self, work: AnOperation) -> AnOperation:
        """Let a work make progress from now on."""
        if self.failure is not None:
            work.end(self.failure)
        self._pending[work] = None
        if work.number:
            self.collectives[work] = None
        if not work.poll() and self.progresses:
            self._process.engine.add(self._progress)
        if work.is_done():
            self.forget(work)
        return work

    def forget(self, work: Any) -> None:
        """Learn that a work has ended."""
        self._pending.pop(work, None)
        self.collectives.pop(work, None)
        self.receives.withdraw(work)

    def ended_before(self, number: int) -> bool:
        """Tell whether the asynchronous collectives have ended that were issued before one of this number.

        MPI carries several out at the same time, and may be done with a later one first; programs rely on their order.
        """
        while self.collectives:
            try:
                first = next(iter(self.collectives))
            except (RuntimeError, StopIteration):  # another thread has changed them just now
                continue
            if first.number >= number:
                return True
            if not first.poll():
                return False
            self.collectives.pop(first, None)
        return True

    def look_after_receives(self, tag: int | None = None) -> None:
        """Let receives meet what has come: all where nobody else does, as one peer may be waiting for any of them."""
        if not self.progresses:
            tag = None
        elif tag is None:
            return
        if self.receives.ages:
            self.receives.match(tag)

    # ------------------------------------------------------------------ failing

    def ready(self, array: Array | None = None) -> None:
        """Raise if the group has failed; wait for what a device has yet to write into an array, or any."""
        if self.failure is not None:
            raise anew(self.failure)
        if self.on_device and type(array) is not np.ndarray:
            cuda.synchronize()

    def where(self, what: str) -> str:
        """Return an operation with the group and rank that it is issued on, for messages."""
        return f"{what} on group {self.context.name!r}, rank {self.context.global_ranks[self.rank]}"

    def late(self, what: str, timeout_s: float, number: int = 0) -> DistTimeoutError:
        """Return the error of an operation that has not ended in time; a collective has a number."""
        missing = f"; {self.whereabouts.missing(number)}" if number else ""
        return DistTimeoutError(f"{self.where(what)}: not done after {timeout_s:g} s{missing}")

    def fatal(self, what: str, error: MPI.Exception) -> DistError:
        """Fail the group with an error of MPI, and return it in our error tree."""
        died = self._who_died()
        if died is None and self._process.survives_deaths and may_be_a_death(error):
            # Another survivor has most likely learned of it already; MPI tells this rank as well, a bit later.
            wait_until(lambda: self._who_died() is not None, _NOTICE_S, lambda: None)
            died = self._who_died()
        return self.fail(translate(error, self.where(what), died))

    def _who_died(self) -> tuple[int, str] | None:
        return self._process.who_died(self.mpi, self.context)

    def stopped(self, what: str, request: Testable | None, buffers: Any, stop: BaseException) -> NoReturn:
        """Fail the group with what has stopped a call half-way, and raise it.

        Args:
            what: The call.
            request: Its request, if there is one; an interrupt may have come before it was taken.
            buffers: What MPI was called with.
            stop: What has stopped it.
        """
        if request is not None or not isinstance(stop, DistError):
            self.keep(request, buffers)
        if isinstance(stop, MPI.Exception):
            raise self.fatal(what, stop) from stop
        if self.failure is None:  # interrupted, and nobody knows how far the call had come
            self.fail(stop if isinstance(stop, DistError) else aborted_by(stop, self.where(what)))
        raise stop

    def check_notices(self) -> None:
        """Raise if a notice has come by which another rank has given the group up."""
        if self._notices.has_come():
            self._take_notice(self._notices.heard(at_once=True))

    def check_destroyed(self, number: int) -> bool:
        """Raise if another rank has destroyed the group before a call that needs it; else return false."""
        for rank in self.destroyed_by(number):
            name, host = self.context.global_ranks[rank], self._process.host_of(ranks_in_mpi(self.context)[rank])
            raise self.fail(PeerDiedError(name, host, "it has destroyed the group"))
        return False

    def left_by(self, rank: int) -> DistError:
        """Return why a rank has given the group up, from its notice, which is under way."""
        return _given_up(self.context, self._notices.await_one(_NOTICE_S) or f"rank {rank} has left it")

    def _attend(self) -> None:
        """See to what concerns the whole group while something waits: failures, receives, notices."""
        if self.failure is not None:
            raise anew(self.failure)
        try:
            self.receives.match()
            said = self._notices.heard() if self.size > 1 else None
        except MPI.Exception as error:
            raise self.fatal("a call", error) from error
        self._take_notice(said)

    def _take_notice(self, said: str | None) -> None:
        if said is not None:
            raise self.fail(_given_up(self.context, said))

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
        # Receives that no message has met have just been looked after, all together.
        unmet, now = self.receives.ages, monotonic()
        return any([work.poll() for work in pending if work not in unmet or work.until <= now])


def nobody(number: int) -> Sequence[int]:
    """Know of nobody who has destroyed a group."""
    return ()


def _unnoted(ns: int, message: bool) -> None:
    """Forget it."""


def _given_up(context: Context, said: str) -> GroupAbortedError:
    return GroupAbortedError(f"group {context.name!r} was given up by another rank: {said}")


def _polled(work: Operation) -> bool:
    """Tell whether a work has ended; what a signal handler raises comes here."""
    heed()
    return work.poll()
