"""`Ending`: an event that happens once. Some thread announces it; others wait for it, or have it call them.

A `Future` or a `Condition` would do, were it not for signal handlers. If one raises an exception in the main thread, as
Control-C does in a notebook, a `Condition` that is just being entered stays locked for good. And one that announces the
end itself, by aborting the group, would wait for a lock that the interrupted code holds. So nothing here is locked:
what must happen once is one step of the interpreter, and each waiter waits for a lock of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

__all__ = ["Ending"]

_T = TypeVar("_T")

#: How often a waiter checks by itself: the thread that is to wake it may be interrupted before it does.
_LOOK_S = 0.5


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
        #: Each in a list of its own, out of which it is taken by whoever calls it.
        self._calls: list[list[Callable[[], object]]] = []

    def tell(self, value: Any = None, error: BaseException | None = None) -> bool:
        """Tell the end; only the first telling counts, and returns true."""
        try:
            del self._untold[0]  # by whoever is first; no handler runs between this and the next lines
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
        until = None if timeout_s is None else monotonic() + timeout_s
        left_s = _LOOK_S
        while not self.told:
            if until is not None and (left_s := until - monotonic()) <= 0:
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
