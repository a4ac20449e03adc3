"""`Work`: what an asynchronous call returns, and what a backend returns for every call."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rankwise.basics import unasked
from rankwise.basics.deadline import Timeout, seconds
from rankwise.basics.ending import Ending
from rankwise.basics.interrupts import only_waited
from rankwise.basics.messages import items_in
from rankwise.basics.tracebacks import anew, shorten
from rankwise.errors import DistError, DistTimeoutError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rankwise.basics.work_future import WorkFuture


@runtime_checkable
class Work(Protocol):
    """One operation that has been issued.

    Once `wait` has returned, `is_completed` is true. A failed work raises the same error each time.
    """

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Block until the operation has ended, and return true.

        Args:
            timeout: How long to wait; None waits for as long as the operation itself may take. When it passes,
                the wait ends but the operation goes on and may be waited for again.

        Raises:
            DistTimeoutError: The time-out has passed.
            DistError: The operation has failed.
        """

    def is_completed(self) -> bool:
        """Return whether the operation has ended, with or without an error. Never blocks."""

    def is_success(self) -> bool:
        """Return whether the operation has ended without an error. Never blocks."""

    def exception(self) -> BaseException | None:
        """Return the error of an operation that has failed, or None. Never blocks."""

    def result(self) -> Any:
        """Return what the operation filled, as soon as it has ended."""

    def get_future(self) -> Future[Any]:
        """Return a future of `result()`, best a `WorkFuture`: waiting for it is the same as `wait`."""

    def source_rank(self) -> int:
        """Return the rank that sent the message of a completed receive."""

    @property
    def nbytes(self) -> int:
        """How many bytes of its message a completed receive has got; 0 for anything else."""

    def count(self, dtype: Any) -> int:
        """Return how many elements of a dtype that is, or raise a `ValueError` if it is no whole number."""

    def synchronize(self) -> None:
        """Block the host until the operation has ended; on a CPU the same as `wait`."""

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(work)` once the operation has ended; immediately if it has."""

    def cancel(self) -> bool:
        """Withdraw a receive that no message has matched yet; return whether that was done."""

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in asyncio, without blocking the event loop."""


def state(work: Work) -> str:
    """Say in words how far a work has come; only looks."""
    if not work.is_completed():
        return "pending"
    error = work.exception()
    return "done" if error is None else f"failed with {type(error).__name__}: {error}"


class FutureWork:
    """A work that some thread ends by calling `succeed` or `fail`: the base for threaded backends.

    Attributes:
        nbytes: How many bytes of its message a receive has got; set before it ends.
    """

    nbytes = 0

    def __init__(self) -> None:
        self._ending = Ending()
        self._source: int | None = None

    def succeed(self, result: Any = None, source: int | None = None) -> None:
        """End the work well; `source` is the group rank that a received message came from."""
        if not self._ending.told:
            self._source = source
            self._ending.tell(result)

    def fail(self, error: BaseException) -> None:
        """End the work with `error`; the first ending counts."""
        self._ending.tell(None, error)

    def lose(self, error: BaseException) -> None:
        """End the copy of the work in the child of a fork, without a lock: a thread that is no more may have it."""
        self._ending.lose(error)

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Block until the work has ended; see `Work.wait`."""
        try:
            timeout_s = None if timeout is None else seconds(timeout)
            try:
                in_time = self._ending.wait(timeout_s)
            except BaseException as error:
                only_waited(error)  # no wait changes anything, see `Ending`
                raise
            if not in_time:
                raise DistTimeoutError(f"timed out: not done after {timeout_s:g} s")
            self._check()
            return True
        except BaseException as error:
            shorten(error)
            raise

    @property
    def ended(self) -> bool:
        """Whether the work is known to have ended: to ask moves nothing, so any thread may, at any time.

        The flight recorder does, with works that the program asks no more. A work of another base may have it too.
        """
        return self._ending.told

    def is_completed(self) -> bool:
        """Tell whether the work has ended."""
        return self._ending.told

    def is_success(self) -> bool:
        """Tell whether the work has ended well."""
        return self._ending.told and self._ending.error is None

    def exception(self) -> BaseException | None:
        """Return the error of a work that has failed, or None."""
        return self._ending.error

    def result(self) -> Any:
        """Wait for the work and return its result."""
        self.wait()
        return self._ending.value

    def get_future(self) -> Future[Any]:
        """Return a future of `result()`."""
        ending = self._ending
        future = future_of(self, lambda: ending.value)
        ending.then(future.end)
        return future

    def source_rank(self) -> int:
        """Return the rank that sent the message of a completed receive."""
        if self._source is None:
            raise RuntimeError("source_rank() is for a receive that has completed")
        return self._source

    def count(self, dtype: Any) -> int:
        """Return how many elements of a dtype a completed receive has got."""
        return items_in(self.nbytes, dtype)

    def synchronize(self) -> None:
        """Wait, as on every CPU backend."""
        self.wait()

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(work)` once the work has ended."""
        self._ending.then(lambda: callback(self))

    def cancel(self) -> bool:
        """Say that this work cannot be withdrawn; a backend that can, overrides this."""
        return False

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.wrap_future(self.get_future()).__await__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {state(self)}>"

    def _check(self) -> None:
        """Raise the error of a work that has failed."""
        if self._ending.error is not None:
            raise anew(self._ending.error)


def _over() -> Ending:
    ending = Ending()
    ending.tell()
    return ending


class CompletedWork(FutureWork):
    """A work that ended well before it was returned; it costs nothing to make and nothing to wait for.

    A backend fills the caller's buffers, so its result is None.
    """

    _ending = _over()

    def __init__(self, source: int | None = None) -> None:
        self._source = source

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Return immediately."""
        return True

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call immediately."""
        callback(self)

    def call_when_done(self, callback: Callable[[Work], object], work: Work) -> None:
        """Call `callback(work)` of the work that the program has, which may be another object."""
        callback(work)


#: The one completed work without a source.
COMPLETED: Work = CompletedWork()


class BoundWork:
    """A backend's work as the caller sees it: with the caller's own buffers as result, and global ranks."""

    def __init__(
        self,
        inner: Work,
        result: Any,
        global_ranks: tuple[int, ...],
        noted: Callable[[BaseException | None], object] | None = None,
        broken: Callable[[BaseException], object] = shorten,
        what: Callable[[], str] | None = None,
    ) -> None:
        self._inner = inner
        self._what_it_is = what  # says so, for those who print the work
        self._noted = noted  # tells the flight recorder, as soon as the caller looks
        self._broken = broken  # ends a call that raises
        self._result = result  # also keeps the buffers alive until nobody can be using them
        self._global_ranks = global_ranks
        if noted is not None and hasattr(inner, "ended"):
            unasked.watch(inner, noted)

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Block until the operation has ended; see `Work.wait`."""
        try:
            return self._inner.wait(timeout)
        except BaseException as error:
            self._broken(error)
            raise
        finally:
            self.is_completed()

    def is_completed(self) -> bool:
        """Tell whether the operation has ended."""
        ended = self._inner.is_completed()
        if ended and self._noted is not None:
            self._note(self._inner.exception())
        return ended

    def __repr__(self) -> str:
        what = "" if self._what_it_is is None else f"{self._what_it_is()}: "
        return f"<Work: {what}{state(self._inner)}>"

    def _repr_html_(self) -> str:
        from rankwise.basics.rich_display import facts

        what = "an operation" if self._what_it_is is None else self._what_it_is()
        return facts("work", (("operation", what), ("state", state(self._inner))))

    def _note(self, error: BaseException | None) -> None:
        """Tell the flight recorder, once, that the operation has ended."""
        if self._noted is not None:
            self._noted(error)
            self._noted = None

    def is_success(self) -> bool:
        """Tell whether the operation has ended well."""
        return self.is_completed() and self._inner.is_success()

    def exception(self) -> BaseException | None:
        """Return the error of an operation that has failed, or None."""
        self.is_completed()
        return self._inner.exception()

    def result(self) -> Any:
        """Wait for the operation and return the array or arrays that it filled."""
        try:
            self.wait()
        except BaseException as error:
            self._broken(error)
            raise
        return self._result

    def get_future(self) -> Future[Any]:
        """Return a future of `result()`."""
        future = future_of(self, lambda: self._result)
        try:
            self._inner.add_done_callback(lambda _: future.end())
        except BaseException as error:
            self._broken(error)
            raise
        return future

    def source_rank(self) -> int:
        """Return the global rank that sent the message of a completed receive."""
        try:
            return self._global_ranks[self._inner.source_rank()]
        except BaseException as error:
            self._broken(error)
            raise

    @property
    def nbytes(self) -> int:
        """How many bytes of its message a completed receive has got; 0 for anything else."""
        return self._inner.nbytes if self.is_success() else 0

    def count(self, dtype: Any) -> int:
        """Return how many elements of a dtype that is, or raise a `ValueError` if it is no whole number."""
        return items_in(self.nbytes, dtype)

    def synchronize(self) -> None:
        """Block the host until the operation has ended."""
        try:
            self._inner.synchronize()
        except BaseException as error:
            self._broken(error)
            raise
        finally:
            self.is_completed()

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(work)` once the operation has ended, in the context of this call."""
        self.call_when_done(callback, self)

    def call_when_done(self, callback: Callable[[Work], object], work: Work) -> None:
        """Call `callback(work)` of the work that the program has, which may be another object."""
        run = copy_context().run

        def ended(_: Work) -> None:
            self.is_completed()
            run(callback, work)

        try:
            self._inner.add_done_callback(ended)
        except BaseException as error:
            self._broken(error)
            raise

    def cancel(self) -> bool:
        """Withdraw a receive that no message has matched yet."""
        try:
            withdrawn = self._inner.cancel()
        except BaseException as error:
            self._broken(error)
            raise
        if withdrawn:
            # Else it would count as pending for ever, or as one that has got a message.
            self._note(self._inner.exception() or DistError("the receive was withdrawn"))
        return withdrawn

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.wrap_future(self.get_future()).__await__()


def future_of(work: Work, value: Callable[[], Any]) -> WorkFuture:
    """Return a future of a work, whose `end` is to be called once that has ended; `value` returns its result."""
    from rankwise.basics.work_future import WorkFuture  # only now: few programs ask for futures

    return WorkFuture(work, value)
