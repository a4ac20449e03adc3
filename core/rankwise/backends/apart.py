"""`ApartWork`: a work whose callbacks may wait for anything."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rankwise.basics.interrupts import start_thread
from rankwise.basics.work import FutureWork, Work

__all__ = ["ApartWork"]


class ApartWork(FutureWork):
    """A work that is ended by the thread that moves messages, and perhaps by another rank's.

    That thread must not be kept by a callback, which may wait for messages that only it would bring: each callback runs
    on a thread of its own.
    """

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(work)` once the work has ended."""
        if self.is_completed():
            super().add_done_callback(callback)
        else:
            super().add_done_callback(lambda work: _begin(callback, work))


def _begin(callback: Callable[[Work], object], work: Work) -> None:
    start_thread(threading.Thread(target=callback, args=(work,), name="rankwise callback", daemon=True))
