"""`Request`: one message that is being sent or received; the work that callers wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from rankwise.backends import FutureWork, Timeout, Work, anew, seconds
from rankwise_gloo_tcp.state import RequestState

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rankwise.backends import WorkFuture


class RequestOwner(Protocol):
    """What a request asks of its engine."""

    lock: threading.Lock
    timeout_s: float

    def drive(self, request: Request, timeout_s: float) -> None:
        """Move messages until a request has ended."""

    def ended(self, request: Request) -> None:
        """Note that a request has ended; the lock is held."""

    def issued(self, request: Request) -> None:
        """Move a request forward also while nobody waits for it; the lock is held."""

    def promised(self, request: Request) -> None:
        """Note that the future of a request that has ended is to be told; the lock is held."""

    def settle(self) -> None:
        """Do what must be done without the lock."""

    def withdraw(self, request: Request) -> bool:
        """Take back a receive that no message has met."""


class Request(RequestState, FutureWork):
    """A send or a receive. A thread that waits for it moves all messages of its engine forward meanwhile.

    Compiled code makes some receives, with the same members: of those `by` takes in the message, if that is the next.

    Attributes:
        buffer: The caller's memory.
        peer: The other's group rank; None for a receive from anyone.
        dtype: The mark of its dtype; 0 where any will do.
        watched: Whether it is moved forward although nobody waits for it.
        streamed: Whether a long message goes through a pipe although its memory may be read.
        nbytes: Bytes of the message that a receive has got.
        done: Whether it has ended. Set last.
    """

    engine: RequestOwner

    def __init__(self, engine: RequestOwner, buffer: memoryview, peer: int | None, tag: int, dtype: int = 0) -> None:
        # A `Future` costs more than a small message: it is made when somebody asks for it.
        self.engine, self.buffer, self.peer, self.tag, self.dtype = engine, buffer, peer, tag, dtype
        self.done = False
        self.watched = False
        self.nbytes = 0
        self.streamed = False
        self.error = None
        self._source = self.promise = None

    def end(self, error: BaseException | None = None, source: int | None = None) -> None:
        """End the request; the first ending counts. The caller holds the engine's lock."""
        if self.done:
            return
        self.error, self._source = error, source
        self.done = True
        self.engine.ended(self)

    def succeed(self, result: Any = None, source: int | None = None) -> None:
        with self.engine.lock:
            self.end(None, source)
        self.engine.settle()

    def fail(self, error: BaseException) -> None:
        with self.engine.lock:
            self.end(error)
        self.engine.settle()

    def lose(self, error: BaseException) -> None:
        self.error, self.done = error, True

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Move messages until this one has ended."""
        if not (self.done or (self.by is not None and self.by.take(self, True))):
            began_ns = monotonic_ns()
            self.engine.drive(self, self.engine.timeout_s if timeout is None else seconds(timeout))
            if self.by is not None:
                self.by.woken(monotonic_ns() - began_ns)
        if self.error is not None:
            raise anew(self.error)
        return True

    @property
    def ended(self) -> bool:
        return self.done

    def is_completed(self) -> bool:
        if not (self.done or self.by is None or self.by.take(self, False)):
            self._leave_alone()
        return self.done

    def is_success(self) -> bool:
        return self.done and self.error is None

    def exception(self) -> BaseException | None:
        return self.error

    def result(self) -> Any:
        self.wait()
        return None

    def get_future(self) -> Future[Any]:
        with self.engine.lock:
            promise: WorkFuture | None = self.promise
            if promise is None:
                from rankwise.backends import WorkFuture  # only now: few programs ask for futures

                promise = self.promise = WorkFuture(self, _nothing)
                if self.done:
                    self.engine.promised(self)
        self._leave_alone()
        self.engine.settle()
        return promise

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        self.get_future().add_done_callback(lambda _: callback(self))

    def settle(self) -> None:
        """Tell the future, if there is one. Nobody holds the engine's lock: callbacks may do anything."""
        if self.promise is not None:
            self.promise.end()

    def has_promise(self) -> bool:
        """Tell whether somebody has asked for a future."""
        return self.promise is not None

    def _leave_alone(self) -> None:
        """Have a receive that compiled code has posted served while this thread does something else."""
        if self.by is not None and not self.watched:
            with self.engine.lock:
                self.engine.issued(self)

    def cancel(self) -> bool:
        """Withdraw a receive that no message has met yet."""
        return self.engine.withdraw(self)


def _nothing() -> None:
    """Return the result of a message."""
