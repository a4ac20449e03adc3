"""`Ending`: what happens once. Some thread tells it; others wait for it, or are called then.

A `Future` or a `Condition` would do, were it not for the exceptions that signal handlers raise in the main thread, as
Control-C does in a notebook. One that comes while a `Condition` is being entered leaves it locked for good, and whoever
is to tell the end stands still. A lock in a `with` statement of its own knows no such moment, and each waiter has
another lock to wait for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

__all__ = ["Ending"]

_LOG = logging.getLogger("rankwise")
#: How seldom a waiter looks by itself: the thread that is to wake it may be interrupted before it does.
_LOOK_S = 0.5


class Ending:
    """One end, and how it was.

    Attributes:
        told: Whether it has been told.
        value: What came of it.
        error: What went wrong, or None.
    """

    __slots__ = ("_bells", "_calls", "_lock", "error", "told", "value")

    def __init__(self) -> None:
        self.told = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._bells: list[threading.Lock] = []
        self._calls: list[Callable[[], object]] = []

    def tell(self, value: Any = None, error: BaseException | None = None) -> bool:
        """Tell the end; only the first telling counts, and returns true."""
        with self._lock:
            if self.told:
                return False
            self.value, self.error = value, error
            self.told = True
        for bell in self._bells:
            bell.release()
        calls, self._calls = self._calls, []  # they may hold whoever holds this
        for call in calls:
            _guarded(call)
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return true once the end has been told, or false when the time-out has passed."""
        if self.told:
            return True
        bell = threading.Lock()
        bell.acquire()
        with self._lock:
            if self.told:
                return True
            self._bells.append(bell)
        until = None if timeout_s is None else monotonic() + timeout_s
        left_s = _LOOK_S
        while not self.told:
            if until is not None and (left_s := until - monotonic()) <= 0:
                self._take_back(bell)
                return self.told
            bell.acquire(timeout=min(left_s, _LOOK_S))
        return True

    def then(self, call: Callable[[], object]) -> None:
        """Have something called at the end; at once if it is over."""
        with self._lock:
            if not self.told:
                self._calls.append(call)
                return
        _guarded(call)

    def _take_back(self, bell: threading.Lock) -> None:
        with self._lock:
            if not self.told:
                self._bells.remove(bell)


def _guarded(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        _LOG.exception("a callback of a finished operation failed")
