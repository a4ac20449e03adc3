"""`NcclWork`: one operation, from the moment it is called to the moment the device has done it.

It goes through three states: queued (its queue is still starting), issued (NCCL has it, in the order of the queue's
stream), ended (the device is done with it, or it has failed). `wait` is about streams: it makes the caller's current
stream wait and returns; after it the result may be used by whatever is put on that stream. `synchronize` blocks the
host until the device is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rankwise.backends import Deadline, Timeout, anew, items_in, seconds
from rankwise.errors import DistError, DistTimeoutError
from rankwise_nccl.library.failures import translate

if TYPE_CHECKING:
    from rankwise.backends import Array, Work
    from rankwise_nccl.queues.queue import CommQueue

#: How often a blocked host looks at the device: at first often, as most operations are short.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 20e-6, 1e-3

#: Ends come from the watchdog, from callers and from aborts; they are rare and short, so that one lock serves all.
_ending = threading.Lock()


class NcclWork:
    """One operation on one queue.

    Args:
        queue: The communicator and stream that it runs on.
        op: What it is, for messages; for collectives with a number, by which ranks can be compared.
        call: Hands it to NCCL; called with the NCCL communicator and the stream's address.
        buffers: What has to stay alive until the device is done.
        timeout_s: How long it may take from now.
        after: Puts what follows NCCL's part on the stream; called with the stream's address.
        source: The group rank that a received message comes from.
        number: How many collectives have been begun on the group before this one.
        peers: The global rank at the other end of a message.
    """

    __slots__ = (
        "__weakref__",  # as whoever looks after works that nobody asks does not keep them alive
        "_error",
        "_future",
        "_source",
        "after",
        "buffers",
        "call",
        "captured",
        "deadline",
        "done",
        "ended",
        "issued",
        "number",
        "op",
        "peers",
        "queue",
        "ready",
        "waited",
    )

    def __init__(
        self,
        queue: CommQueue,
        op: str,
        call: Callable[[Any, Any], None],
        buffers: tuple[Array, ...],
        timeout_s: float,
        after: Callable[[Any], None] | None = None,
        source: int | None = None,
        number: int | None = None,
        peers: tuple[int, ...] = (),
    ) -> None:
        self.number, self.peers = number, peers
        self.queue, self.op, self.call, self.after, self.buffers = queue, op, call, after, buffers
        self.deadline = Deadline(timeout_s)
        #: Recorded on the caller's stream at the call, and on the queue's stream behind the operation.
        self.ready: Any = None
        self.done: Any = None
        #: Whether it is part of a graph that is being captured, and runs only when that is launched.
        self.captured = False
        self.issued = False
        self.ended = False
        #: Whether a stream has been made to wait for it, and so goes on to use what it brings.
        self.waited = False
        self._error: DistError | None = None
        self._future: Future[Any] | None = None
        self._source = source

    # ------------------------------------------------------------------ for the backend

    @property
    def title(self) -> str:
        """What it is and whose."""
        number = "" if self.number is None else f" #{self.number}"
        return f"{self.op}{number} on {self.queue.name}"

    def ask(self) -> bool:
        """Ask whether the device is done, and tell whether the work has ended.

        Raises:
            DistError: What CUDA has met; an earlier kernel's failure shows wherever it is asked next.
        """
        if not self.ended and self.issued and not self.captured:
            try:
                happened = self.queue.has_happened(self.done)
            except Exception as error:
                raise translate(error, self.title) from error
            if happened:
                self.end(None)
        return self.ended

    def poll(self) -> bool:
        """Ask, and end the work with what CUDA has met."""
        try:
            return self.ask()
        except DistError as error:
            self.end(error)
            return True

    def look(self) -> bool:
        """Ask for the program: not while it captures a graph, and what CUDA has met is left to the watchdog.

        That asks the same, and has all ranks raise the same error.
        """
        if self.ended or self.queue.captures():
            return self.ended
        with suppress(DistError):
            return self.ask()
        return False

    def end(self, error: DistError | None) -> None:
        """End the work; the first ending counts. The buffers stay where they are if it has failed."""
        with _ending:
            if self.ended:
                return
            self._error = error
            self.ended = True
            future = self._future
        if error is None:
            self.buffers = ()
            self.call = self.after = _nothing
        if future is not None:
            with self.queue.on_device():  # callbacks may well work on the arrays
                _settle(future, error)

    @property
    def failure(self) -> DistError | None:
        """What it has failed with."""
        return self._error

    def finish(self, timeout_s: float) -> None:
        """Block until the device is done, whatever becomes of the work.

        Raises:
            DistTimeoutError: The time-out has passed.
        """
        self._block(timeout_s, self.look)

    # ------------------------------------------------------------------ `Work`

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Make the current stream wait for the operation, and return; see `Work.wait`.

        The host waits only where it has to: with a time-out shorter than the operation's own until the device is
        done, and otherwise until NCCL has been given the operation, which is immediately unless the communicator is
        still starting.
        """
        timeout_s = None if timeout is None else seconds(timeout)
        if not self.issued:
            self.queue.flush()
        if timeout_s is not None and timeout_s < self.deadline.timeout_s:  # else the watchdog is the first to end it
            self._block(timeout_s, self.look)
        elif not self.issued:
            self._block(None, lambda: self.issued)
        self._check()
        if not self.ended:
            try:
                self.queue.join(self)
            except Exception as error:
                raise translate(error, self.title) from error
        self.waited = True
        return True

    def synchronize(self) -> None:
        """Block the host until the device is done."""
        if not self.issued:
            self.queue.flush()
        self._block(None, self.look)
        self._check()

    def is_completed(self) -> bool:
        """Tell whether the device is done, or the caller's stream has been made to wait until it is."""
        return self.waited or self.look()

    def is_success(self) -> bool:
        """Tell whether the work has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Return the error of a work that has failed, or None."""
        return self._error if self.look() else None

    def result(self) -> Any:
        """Wait; a backend fills the caller's buffers and has nothing else to give."""
        self.wait()

    def get_future(self) -> Future[Any]:
        """Return a future that is done when the device is."""
        with _ending:
            new = self._future is None
            future = self._future = self._future or Future()
            late = new and self.ended
        if late:
            _settle(future, self._error)
        return future

    def source_rank(self) -> int:
        """Return who sent the message of a receive that has been waited for."""
        if self._source is None or not self.is_completed():
            raise RuntimeError("source_rank() is for a receive that has completed")
        return self._source

    @property
    def nbytes(self) -> int:
        """How many bytes the message of a receive has: as many as its array."""
        return 0 if self._source is None else int(self.buffers[0].nbytes)

    def count(self, dtype: Any) -> int:
        """Return how many elements of a dtype that is."""
        return items_in(self.nbytes, dtype)

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(work)` once the device is done, on a thread of the backend; immediately if it is."""
        self.get_future().add_done_callback(lambda _: callback(self))

    def cancel(self) -> bool:
        """Say that this work cannot be withdrawn: NCCL knows no such thing."""
        return False

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.wrap_future(self.get_future()).__await__()

    # ------------------------------------------------------------------ within

    def _check(self) -> None:
        if self._error is not None:
            raise anew(self._error)

    def _block(self, timeout_s: float | None, over: Callable[[], bool]) -> None:
        """Wait until `over()` or the end; without a time-out, the watchdog ends the work at its deadline."""
        deadline = None if timeout_s is None else Deadline(timeout_s)
        pause_s = _SHORTEST_PAUSE_S
        while not over() and not self.ended:
            if deadline is not None and deadline.expired():
                raise DistTimeoutError(f"{self.title}: not done after {deadline.timeout_s:g} s")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class BarrierWork(NcclWork):
    """A barrier: its wait is about the host, as nobody waits for a barrier on a stream alone."""

    __slots__ = ()

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Block the host until every rank has come."""
        super().wait(timeout)
        if not self.captured:
            self.synchronize()
        return True


def _nothing(*_: Any) -> None:
    """Stand in for a call that has been made, which would keep its arrays alive."""


def _settle(future: Future[Any], error: BaseException | None) -> None:
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
