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
    """One end: whether it has been told, what came of it, and what went wrong, or None."""

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
        """End it in the child of a fork, where nobody is to be told: what was to happen happens in the parent.

        What was over in the parent is over.
        """
        self._untold.clear()
        if not self.told:
            self.error, self.told = error, True

    def tell(self, value: Any = None, error: BaseException | None = None) -> bool:
        """Tell the end; only the first telling counts, and returns true."""
        try:
            del self._untold[0]  # by the first thread; no handler runs between this and the next lines
        except IndexError:
            return False
        self.value, self.error = value, error
        self.told = True
        for bell in taken(self._bells):
            bell.release()
        for calls in taken(self._calls):
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


def taken(items: list[_T]) -> Iterator[_T]:
    """Take items out of a list, the first first, until there is none."""
    while items:
        try:
            item = items.pop(0)
        except IndexError:
            return  # another thread was faster
        yield item


def _call(calls: list[Callable[[], object]]) -> None:
    try:
        for call in taken(calls):
            call()
    except Exception:
        import logging  # only now: callbacks rarely fail

        logging.getLogger("rankwise").exception("a callback of a finished operation failed")
