"""`WorkFuture`: the future of a work. Any thread may wait for it, even the one that carries the work out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, Protocol

from rankwise.basics.deadline import Deadline
from rankwise.basics.ending import Ending, taken
from rankwise.basics.interrupts import is_interrupt
from rankwise.basics.tracebacks import shorten


class _Awaited(Protocol):
    """What a future asks of its work."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end; without a time-out for as long as the operation itself may take."""

    def is_completed(self) -> bool:
        """Tell whether it has ended."""

    def exception(self) -> BaseException | None:
        """Return why it has failed, or None."""


class _Condition(type(threading.RLock())):  # type: ignore[misc]
    """A condition that is its own lock: it is entered in one step, so that no interrupt leaves it held."""

    def __init__(self) -> None:
        self._changes: list[Ending] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Let the lock go until `notify_all`, or for so long; tell which of the two it was."""
        change = Ending()
        self._changes.append(change)
        held = self._release_save()
        try:
            return change.wait(timeout)
        finally:
            self._acquire_restore(held)

    def notify_all(self) -> None:
        """Wake all who wait."""
        for change in taken(self._changes):
            change.tell()


class WorkFuture(Future[Any]):
    """A future that cannot be cancelled: what has been issued goes on.

    Waiting for it is waiting for the work, and happens as there: on the thread that serves asynchronous operations by
    serving them, and no longer than the operation's own time-out.

    Args:
        work: The work. The maker of the future calls `end` once that has ended.
        value: Returns the result of a work that has ended well.
    """

    def __init__(self, work: _Awaited, value: Callable[[], Any]) -> None:
        super().__init__()
        self._condition = _Condition()
        self._work, self._value = work, value
        self.set_running_or_notify_cancel()

    def end(self) -> None:
        """Take over how the work has ended; only the first call counts."""
        error = self._work.exception()
        self._tell(error, None if error is not None else self._value())

    def result(self, timeout: float | None = None) -> Any:
        """Wait, and return the work's result or raise its error."""
        try:
            return super().result(self._waited(timeout))
        except BaseException as error:
            shorten(error)
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return the work's error, or None."""
        return super().exception(self._waited(timeout))

    def then(self, callback: Callable[[Future[Any]], Any]) -> Future[Any]:
        """Return a future of what `callback(self)` returns, which is called once this one has ended."""
        return _Chained(self, callback)

    def _waited(self, timeout: float | None) -> float | None:
        """Wait for the work, and return how long the future itself may still be waited for."""
        if self.done():
            return None
        deadline = None if timeout is None else Deadline(timeout)
        try:
            self._work.wait(timeout)
        except Exception as error:  # how the work has ended is for the future to tell
            if is_interrupt(error):
                raise
            if timeout is None and not self._work.is_completed():
                self._tell(error)  # the operation has been withdrawn at its time-out
        if self._work.is_completed():
            self.end()  # this may be the thread that is to tell it, in the callback before
        return None if deadline is None else deadline.remaining()

    def _tell(self, error: BaseException | None, value: Any = None) -> None:
        try:
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)
        except InvalidStateError:
            pass  # it has been told


class _Chained(WorkFuture):
    """What a callback makes of another future."""

    def __init__(self, source: WorkFuture, callback: Callable[[Future[Any]], Any]) -> None:
        Future.__init__(self)
        self._source, self._callback = source, [callback]
        self.set_running_or_notify_cancel()
        source.add_done_callback(self._call)

    def _waited(self, timeout: float | None) -> float | None:
        left_s = self._source._waited(timeout)
        if self._source.done():
            self._call(self._source)  # as above
        return left_s

    def _call(self, ended: Future[Any]) -> None:
        try:
            callback = self._callback.pop()
        except IndexError:
            return  # it has been called, or is being called
        try:
            self._tell(None, callback(ended))
        except Exception as error:  # raised where it is waited for
            self._tell(error)
