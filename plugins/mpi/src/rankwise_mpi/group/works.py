"""What has been issued and has not ended: requests of MPI, and receives that no message has met."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from time import monotonic
from typing import Any

from mpi4py import MPI

from rankwise.backends import Array, FutureWork, Timeout, Work, seconds, too_long
from rankwise.errors import DistError, DistTimeoutError
from rankwise_mpi.group.endpoint import Endpoint
from rankwise_mpi.library.counts import message, size_of
from rankwise_mpi.library.layout import new_bytes
from rankwise_mpi.library.requests import Testable


class Pending(FutureWork):
    """A work that makes progress whenever somebody looks at it: its owner, the progress thread, or who waits.

    Args:
        owner: This rank's end of the group.
        what: The operation, for messages.
        timeout_s: How long the operation may take from now.
    """

    def __init__(self, owner: Endpoint, what: str, timeout_s: float) -> None:
        super().__init__()
        self._owner = owner
        self._what = what
        self._timeout_s = timeout_s
        #: For a collective, which of the group's it is.
        self.number = 0
        #: By when it must have ended.
        self.until = monotonic() + timeout_s
        #: At most one entry: the thread that is looking. Unlike a lock, it can be told who that is.
        self._looker: dict[None, int] = {}

    def advance(self) -> bool:
        """Make progress, and tell whether the operation has ended well; its error is raised."""
        raise NotImplementedError

    def give_up(self) -> bool:
        """Leave the operation to itself; tell whether the group is as good as before."""
        raise NotImplementedError

    def poll(self) -> bool:
        """Make progress, and tell whether the operation has ended, well or badly."""
        if self._ending.told:
            return True
        me = get_ident()
        # If this thread seems to be looking, it was interrupted on its way in or out.
        if self._looker.setdefault(None, me) != me:
            return self._ending.told
        try:
            # Another thread may have ended it between the two questions: then it must not be finished twice.
            error = None if self.is_done() else self._look()
        finally:
            self._looker.clear()
        if error is not None:
            self.end(error)
        return self._ending.told

    def end(self, error: DistError | None) -> None:
        """End the work, badly if there is an error; the first ending counts."""
        try:
            if error is None:
                self.succeed(source=self._source)
            else:
                self.fail(error)
        finally:
            self._owner.forget(self)

    def is_done(self) -> bool:
        """Tell whether the work has ended, without looking again."""
        return self._ending.told

    def is_completed(self) -> bool:
        """Make progress, and tell whether the work has ended."""
        return self.poll()

    def is_success(self) -> bool:
        """Make progress, and tell whether the work has ended well."""
        return self.poll() and super().is_success()

    def exception(self) -> BaseException | None:
        """Make progress, and return the error of a work that has failed, or None."""
        self.poll()
        return super().exception()

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Block until the work has ended; see `rankwise.basics.work.Work.wait`."""
        # The operation's own time-out is kept by `poll`.
        timeout_s = self._timeout_s + 1.0 if timeout is None else seconds(timeout)
        if not self._owner.wait_done(self.poll, timeout_s, self._what, self.number):
            raise DistTimeoutError(f"{self._owner.where(self._what)}: not done after {timeout_s:g} s")
        self._check()
        return True

    def result(self) -> Any:
        """Wait for the work; what it filled is the caller's own."""
        self.wait()

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(work)` once the work has ended."""
        if not self._owner.progresses:
            # Nobody would look again by himself: a callback that waits is better than one that never comes.
            self._owner.wait_until(self.poll, self._timeout_s + 1.0)
        super().add_done_callback(callback)

    def _look(self) -> DistError | None:
        try:
            ended = self.advance()
        except MPI.Exception as error:
            return self._owner.fatal(self._what, error)
        except DistError as error:
            return error
        if ended:
            self.end(None)
        elif monotonic() >= self.until:
            return self._late()
        return None

    def _late(self) -> DistError:
        error = self._owner.late(self._what, self._timeout_s, self.number)
        return error if self.give_up() else self._owner.fail(error)


class RequestWork(Pending):
    """A request of MPI.

    Args:
        owner: This rank's end of the group.
        what: The operation, for messages.
        timeout_s: How long it may take from now.
        request: The request.
        buffers: What must live as long as MPI may use it.
        finish: Called once when the request has ended well, before the work does.
        number: For a collective, which of the group's it is.
    """

    def __init__(
        self,
        owner: Endpoint,
        what: str,
        timeout_s: float,
        request: Testable,
        buffers: Any,
        finish: Callable[[], object] | None = None,
        number: int = 0,
    ) -> None:
        super().__init__(owner, what, timeout_s)
        self.number = number
        self._request = request
        self._buffers = buffers
        self._finish = finish

    def advance(self) -> bool:
        """Test the request."""
        if not self._request.Test():
            self._owner.look_after_receives()
            return False
        if self.number and not self._owner.ended_before(self.number):
            return False
        if self._finish is not None:
            self._finish()
        return True

    def give_up(self) -> bool:
        """Keep what MPI may still use: a collective, or a send, cannot be withdrawn."""
        self._owner.keep(self._request, self._buffers)
        return False


class ReceiveWork(Pending):
    """A receive, which is posted only when its message has been met and found to fit.

    A receive that is posted beforehand does not tell the sender's size when that is too large, and a single-copy
    transport may write past the end of the buffer.

    Args:
        owner: This rank's end of the group.
        array: Where the message goes.
        src: From whom, or None for anyone.
        tag: The message's tag.
        finish: Called once when the message is there, with the sender, before the work ends; its error is the work's.
        head_nbytes: How much of the array is not the user's, for messages.
    """

    def __init__(
        self,
        owner: Endpoint,
        array: Array,
        src: int | None,
        tag: int,
        finish: Callable[[int], object] | None = None,
        head_nbytes: int = 0,
    ) -> None:
        super().__init__(owner, f"irecv(tag={tag})", owner.context.timeout_s)
        self.src = src
        self.tag = tag
        self._array = array
        self._finish = finish
        self._head_nbytes = head_nbytes
        self._met_from = 0
        self._request: MPI.Request | None = None
        self._misfit: BaseException | None = None

    def meet(self, met: MPI.Message, status: MPI.Status) -> None:
        """Begin to take the message; the work ends only when somebody looks at it, as its callbacks may call MPI."""
        self._met_from, nbytes = status.Get_source(), size_of(status)
        self.nbytes = nbytes - self._head_nbytes
        try:
            if nbytes > self._array.nbytes:
                self._misfit = refused(self._owner, met, status, self._array, self.tag, self._head_nbytes)
            else:
                self._request = met.Irecv(message(self._array, nbytes, self._owner.limit))
        except MPI.Exception as error:
            self._misfit = error

    def advance(self) -> bool:
        """Look for messages; once the own one is met, receive it."""
        if self._request is None and self._misfit is None:
            self._owner.look_after_receives(self.tag)
        if self._misfit is not None:
            raise self._misfit
        if self._request is None or not self._request.Test():
            return False
        self._source = self._met_from
        if self._finish is not None:
            self._finish(self._met_from)
        return True

    def give_up(self) -> bool:
        """Withdraw the receive if it has not met a message."""
        if self._owner.receives.withdraw(self):
            return True
        self._owner.keep(self._request, self._array)
        return False

    def cancel(self) -> bool:
        """Withdraw the receive if it has not met a message."""
        withdrawn = self._owner.receives.withdraw(self)
        if withdrawn:
            self.end(DistError(f"{self._owner.where(self._what)} was withdrawn"))
        return withdrawn


def refused(
    owner: Endpoint, met: MPI.Message, status: MPI.Status, array: Array, tag: int, head_nbytes: int = 0
) -> DistError:
    """Take a message that does not fit out of the way, and return the error that names both sizes."""
    nbytes = size_of(status)
    scratch = new_bytes(array, nbytes)
    # Not waited for: a large message comes only when its sender is in a call of MPI.
    owner.keep(met.Irecv(message(scratch, nbytes, owner.limit)), scratch)
    sender = owner.context.global_ranks[status.Get_source()]
    return too_long(nbytes - head_nbytes, sender, tag, array.nbytes - head_nbytes)
