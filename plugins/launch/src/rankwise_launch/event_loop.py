"""The event loop of an attempt: what is called when a descriptor is ready, or once some time has passed."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import selectors
import time
from collections.abc import Callable


class EventLoop:
    """Waits for descriptors and for the clock, in the thread that asks it to."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def watch(self, descriptor: int, callback: Callable[[], None], event: int = selectors.EVENT_READ) -> None:
        """Call something whenever a descriptor is ready."""
        self._selector.register(descriptor, event, callback)

    def unwatch(self, descriptor: int) -> None:
        """Call it no more."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call something once, after some time."""
        heapq.heappush(self._agenda, (time.monotonic() + delay_s, next(self._numbers), action))

    def wait(self, limit_s: float | None) -> None:
        """Wait until something is to be called, for so long at most, and call it."""
        if self._agenda:
            next_s = max(self._agenda[0][0] - time.monotonic(), 0.0)
            limit_s = next_s if limit_s is None else min(next_s, limit_s)
        for key, _ in self._selector.select(limit_s):
            key.data()

    def catch_up(self) -> None:
        """Call what is due by the clock."""
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            heapq.heappop(self._agenda)[2]()

    def close(self) -> None:
        """Wait no more."""
        self._selector.close()
