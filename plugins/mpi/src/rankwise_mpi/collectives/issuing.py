"""`Issuing`: how a collective of one group gets to MPI, in the order that is the same on all ranks.

A synchronous collective runs on the caller's own thread. On one host the ranks first wait for each other at the
group's entry barrier, whose wait has the deadline, and compare their calls; then they make the blocking call, from
which no rank is missing any more and which all can make. Between hosts most collectives are the nonblocking call of
MPI and a wait that looks at the clock; where the blocking one is much faster, the ranks meet in a nonblocking reduction
before it. An asynchronous collective is the nonblocking call, and so are the synchronous ones of other ranks that meet
it. MPI keeps the order in which a rank issues collectives, so that there is no queue of our own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from rankwise.backends import COMPLETED, Deadline, Work, mismatch
from rankwise.errors import CollectiveMismatchError, DistError, DistTimeoutError
from rankwise_mpi.collectives.collectives import Planned
from rankwise_mpi.collectives.entry_barrier import EntryBarrier
from rankwise_mpi.collectives.marks import CallMark
from rankwise_mpi.collectives.meeting import AtEntryBarrier, BetweenHosts, EntryProtocol
from rankwise_mpi.collectives.natives import Native, natives_of
from rankwise_mpi.group.endpoint import Endpoint
from rankwise_mpi.group.works import RequestWork
from rankwise_mpi.library.requests import Requests
from rankwise_mpi.messages.messages import MpiMessages

#: For how long an interrupted rank waits for others that it cannot tell in time.
_PATIENCE_S = 0.2


class Issuing:
    """The way of one group's collectives to MPI.

    Args:
        endpoint: This rank's end of the group.
        messages: Its messages, by which ranks that disagree tell each other what they have called.
        entry: Where its ranks meet, if they are all on one host.
    """

    def __init__(self, endpoint: Endpoint, messages: MpiMessages, entry: EntryBarrier | None) -> None:
        self._endpoint, self._messages = endpoint, messages
        self.entry = entry
        self._meeting: EntryProtocol = BetweenHosts(endpoint) if entry is None else AtEntryBarrier(endpoint, entry)
        #: The number of the next collective; a thread takes it, issues that, and puts the following one in its place.
        #: Cheaper than a lock, and waited for with a deadline.
        self.turn: deque[int] = deque([1])
        #: The collectives by name.
        self.natives = natives_of(endpoint, entry is not None)

    def close(self) -> None:
        """Give back what the ranks meet at."""
        self._meeting.close(self.turn[0] - 1 if self.turn else 0)
        self.entry = None

    def call(
        self,
        name: str,
        args: tuple[Any, ...],
        mark: CallMark,
        nbytes: int,
        timeout_s: float,
        async_op: bool,
        finish: Callable[[], object] | None = None,
    ) -> Work:
        """Make one call of MPI.

        Args:
            name: The collective.
            args: What MPI is called with.
            mark: What stands for the call.
            nbytes: How much it moves; the same on all ranks.
            timeout_s: How long it may take.
            async_op: Whether to return a pending work immediately.
            finish: Called when MPI is done.
        """
        endpoint, native = self._endpoint, self.natives[name]
        endpoint.ready()
        if async_op:
            return self._begin(native, [args], nbytes, timeout_s, finish)
        request = None
        try:
            try:
                number = self.turn.pop()
            except IndexError:
                number = self.await_turn(name, timeout_s)
            try:
                if nbytes < native.meets_from:
                    request = native.begin(*args)
                elif self.entry is not None and self.entry.arrive(number, mark):
                    self.entry.decided = number
                    request = native.go(*args)  # nothing can come in between these two lines
                else:
                    request = self.meet_and_go(native, args, mark, timeout_s, number)
            except BaseException as stop:
                request = self.settle(native, args, mark, timeout_s, number, stop)
            finally:
                self.turn.append(number + 1)
            if request is not None:
                test = request.Test
                for _ in endpoint.first_looks:
                    if test():
                        break
                else:
                    endpoint.look_on(name, request, args, timeout_s, number)
            if endpoint.collectives:
                self._await_those_before(number, name, timeout_s)
        except CollectiveMismatchError:
            raise  # all ranks know, nothing has moved: the group is as good as before
        except BaseException as stop:
            endpoint.stopped(name, request, args, stop)
        if finish is not None:
            finish()
        return COMPLETED

    def several(self, name: str, planned: Planned, timeout_s: float, async_op: bool) -> Work:
        """Make the same call of MPI for each piece of an array; mostly there is one. See `call`."""
        calls, mark, nbytes, finish = planned
        if len(calls) == 1:
            return self.call(name, calls[0], mark, nbytes, timeout_s, async_op, finish)
        if async_op:
            self._endpoint.ready()
            return self._begin(self.natives[name], calls, nbytes, timeout_s, finish)
        deadline = Deadline(timeout_s)
        for args in calls:
            self.call(name, args, mark, nbytes, deadline.remaining(), False)
        if finish is not None:
            finish()
        return COMPLETED

    def meet_and_go(
        self, native: Native, args: tuple[Any, ...], mark: CallMark, timeout_s: float, number: int
    ) -> MPI.Request | None:
        """Make a call once all ranks have come to it and agree; return the request if it is the nonblocking one."""
        self._meeting.meet(native.name, mark, timeout_s, number)
        return self._go(native, args, mark, timeout_s, number)

    def settle(
        self,
        native: Native,
        args: tuple[Any, ...],
        mark: CallMark,
        timeout_s: float,
        number: int,
        stop: BaseException,
    ) -> MPI.Request | None:
        """Settle what becomes of a call in which this rank was stopped, and raise that.

        An interrupt may come anywhere: also after this rank has come to the meeting, when the others count on it and
        may be in MPI's blocking call, which would never end. So it leaves, or goes on with them and is stopped after.

        Returns:
            The request of the call, if this rank was late and yet all have come.
        """
        late = isinstance(stop, DistError)
        if not self._meeting.undecided(number):
            raise stop
        if self._meeting.leave(0.0 if late else min(timeout_s, _PATIENCE_S)):
            raise self._endpoint.fail(stop) if isinstance(stop, DistError) else stop
        try:
            request = self._go(native, args, mark, timeout_s, number)
            if not late and request is not None:
                self._endpoint.look_on(native.name, request, args, timeout_s, number)
        finally:
            if not late:
                raise stop
        return request

    def _go(
        self, native: Native, args: tuple[Any, ...], mark: CallMark, timeout_s: float, number: int
    ) -> MPI.Request | None:
        """Make the call to which all ranks have come, if they agree."""
        met = self._meeting.outcome(native.name, mark)
        if not met.agreed:
            self._meeting.decide(number)
            raise mismatch(self._messages, mark.fingerprint, number, Deadline(timeout_s))
        go = native.go if met.alike else native.begin
        self._meeting.decide(number)
        return go(*args)

    def _await_those_before(self, number: int, name: str, timeout_s: float) -> None:
        """Wait for the asynchronous collectives that were issued before a synchronous one, which is done."""
        if not self._endpoint.wait_done(lambda: self._endpoint.ended_before(number), timeout_s, name, number):
            raise self._endpoint.fail(self._endpoint.late(name, timeout_s, number))

    def await_turn(self, what: str, timeout_s: float) -> int:
        """Return this thread's number once another thread of this process has made its call."""
        number = 0

        def take() -> bool:
            nonlocal number
            try:
                number = self.turn.pop()
            except IndexError:
                return False
            return True

        if not self._endpoint.wait_until(take, timeout_s):
            where = self._endpoint.where(what)
            raise DistTimeoutError(f"{where}: another thread's call has not ended after {timeout_s:g} s")
        return number

    def _begin(
        self,
        native: Native,
        calls: Sequence[tuple[Any, ...]],
        nbytes: int,
        timeout_s: float,
        finish: Callable[[], object] | None,
    ) -> Work:
        """Make calls of MPI that do not block, and that end together."""
        endpoint, answers = self._endpoint, None
        try:
            try:
                number = self.turn.pop()
            except IndexError:
                number = self.await_turn(native.name, timeout_s)
            last = number + len(calls) - 1
            try:
                requests, answers = self._meeting.bypass(number, last) if nbytes >= native.meets_from else ([], None)
                requests += [native.begin(*args) for args in calls]
                request = requests[0] if len(requests) == 1 else Requests(requests)
                buffers = calls, answers
                work = RequestWork(endpoint, native.name, timeout_s, request, buffers, finish, last)
                return endpoint.started(work)
            finally:
                self.turn.append(last + 1)
        except BaseException as stop:
            endpoint.stopped(native.name, None, (calls, answers), stop)
