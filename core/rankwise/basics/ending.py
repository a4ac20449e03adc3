"""`Ending`: an event that happens once. Some thread announces it; others wait for it, or have it call them.

A `Future` or a `Condition` would do, were it not for signal handlers. If one raises an exception in the main thread, as
Control-C does in a notebook, a `Condition` that is just being entered stays locked for good. And one that announces the
end itself, by aborting the group, would wait for a lock that the interrupted code holds. So nothing here is locked:
what must happen once is one step of the interpreter, and each waiter waits for a lock of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol, TypeVar

from rankwise.basics.deadline import Deadline
from rankwise.basics.interrupts import is_interrupt
from rankwise.basics.tracebacks import shorten

__all__ = ["Ending", "WorkFuture", "ring"]

_T = TypeVar("_T")

#: How often a waiter checks by itself: the thread that is to wake it may be interrupted before it does.
_LOOK_S = 0.5


def ring(bells: list[threading.Lock]) -> None:
    """Ring bells, which threads wait for, and forget them; a lock of the caller's keeps other threads out.

    Each is forgotten once it has been rung: where an interrupt comes in between, the next who rings finds it.
    """
    for bell in tuple(bells):
        if bell.locked():
            try:
                bell.release()
            except RuntimeError:  # a signal handler has rung it meanwhile
                continue
        if bell in bells:
            bells.remove(bell)


class Ending:
    """One end, and how it was.

    Attributes:
        told: Whether it has been told.
        value: What came of it.
        error: What went wrong, or None.
    """

    __slots__ = ("_bells", "_calls", "_untold", "error", "told", "value")

    def __init__(self) -> None:
        self.told = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._untold = [True]
        self._bells: list[threading.Lock] = []
        #: Each in a list of its own, out of which the thread that calls it takes it.
        self._calls: list[list[Callable[[], object]]] = []

    def __repr__(self) -> str:
        return f"<Ending: {'told' if self.told else 'not told yet'}>"

    def lose(self, error: BaseException) -> None:
        """End it in the child of a fork, where nobody is to be told: what was to happen happens in the parent."""
        self._untold.clear()
        self.error, self.told = error, True

    def tell(self, value: Any = None, error: BaseException | None = None) -> bool:
        """Tell the end; only the first telling counts, and returns true."""
        try:
            del self._untold[0]  # by the first thread; no handler runs between this and the next lines
        except IndexError:
            return False
        self.value, self.error = value, error
        self.told = True
        for bell in _taken(self._bells):
            bell.release()
        for calls in _taken(self._calls):
            _call(calls)
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return true once the end has been told, or false when the time-out has passed."""
        if self.told:
            return True
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)
        until = monotonic() + (float("inf") if timeout_s is None else timeout_s)
        while not self.told:
            if (left_s := until - monotonic()) <= 0:
                with suppress(ValueError):  # it is being rung
                    self._bells.remove(bell)
                return self.told
            bell.acquire(timeout=min(left_s, _LOOK_S))
        return True

    def then(self, call: Callable[[], object]) -> None:
        """Have something called at the end; immediately if it is over."""
        calls = [call]
        if not self.told:
            self._calls.append(calls)
        if self.told:  # perhaps only now, when nobody may look at what was added any more
            _call(calls)


def _taken(items: list[_T]) -> Iterator[_T]:
    """Take items out of a list, the first first, until there is none."""
    while items:
        try:
            item = items.pop(0)
        except IndexError:
            return  # another thread was faster
        yield item


def _call(calls: list[Callable[[], object]]) -> None:
    try:
        for call in _taken(calls):
            call()
    except Exception:
        import logging  # only now: callbacks rarely fail

        logging.getLogger("rankwise").exception("a callback of a finished operation failed")


# `WorkFuture`: the future of a work. Any thread may wait for it, even the one that carries the work out


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
        for change in _taken(self._changes):
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
