"""Ctrl-C, SIGTERM and SIGHUP as something that an event loop can wait for."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from rankwise.basics.systems import signals

__all__ = ["Interrupts"]

_SIGNALS = signals("SIGINT", "SIGTERM", "SIGHUP")


class Interrupts:
    """While entered, notes the signals instead of letting them end the process; a no-op outside the main thread.

    Once one has come, the process is on its way to the exit code that tells so: until then none does anything any more.

    Attributes:
        received: The signals that have come, in order.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
            self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            signal.set_wakeup_fd(self._wakeup_before)
            for number, handler in self._before.items():
                signal.signal(number, signal.SIG_IGN if self.received else handler)
        os.close(self._reader)
        os.close(self._writer)

    def fileno(self) -> int:
        """Return a descriptor that is readable when a signal has come."""
        return self._reader

    def clear(self) -> None:
        """Make the descriptor wait for the next signal."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
