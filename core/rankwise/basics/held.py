"""Signal handlers held back: where groups begin and end, interrupts come only at places that are ready for them.

Such a call changes much, here and at the other ranks, and cannot be given up as a whole in the middle. So while
`held` is entered a signal's handler, whatever it is, is called by `heed` only, which all that waits calls again and
again; or when the call is over. A user who insists gets through: a second signal of the same number finds its own
handler.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

__all__ = ["heed", "held", "is_a_handlers"]

_MARK = "_rankwise_a_handlers"
_NUMBERS = [int(number) for number in signal.valid_signals()]


class _Held:
    """Holds the handlers of this process's signals back; only its main thread, which calls them, has to."""

    def __init__(self) -> None:
        self._depth = 0
        self._own: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._came: dict[int, None] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth += 1
        if self._depth > 1:
            return
        try:
            for number in _NUMBERS:
                handler = signal.getsignal(number)
                if callable(handler) and not type(handler).__module__.startswith("rankwise."):  # ours raise nothing
                    self._own[number] = handler
                    signal.signal(number, self._note)
        except BaseException:
            self._depth = 0
            self._restore()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            self._depth -= 1
            if self._depth == 0:
                self._restore()

    @property
    def patience_s(self) -> float:
        """For how long a wait may go on without `heed`."""
        return 0.05 if self._depth else 3600.0

    def heed(self) -> None:
        """Call the handlers of the signals that have come meanwhile, on the main thread."""
        if self._came and threading.current_thread() is threading.main_thread():
            number = next(iter(self._came))
            del self._came[number]
            try:
                self._own[number](number, sys._getframe(1))
            except BaseException as error:
                setattr(error, _MARK, True)
                raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in self._came:
            self._own[number](number, frame)
        else:
            self._came[number] = None

    def _restore(self) -> None:
        """Give all signals their handlers back, and have these called for what has come."""
        try:
            for number, handler in list(self._own.items()):
                if signal.getsignal(number) == self._note:
                    signal.signal(number, handler)
                del self._own[number]
            while self._came:
                signal.raise_signal(self._came.popitem()[0])
        except BaseException:  # a handler's
            self._restore()
            raise


#: The one that all use: `with held: ...`.
held = _Held()
heed = held.heed


def is_a_handlers(error: BaseException) -> bool:
    """Tell whether a signal's handler has raised an error, here where handlers are held back."""
    return getattr(error, _MARK, False) is True or not isinstance(error, Exception)
