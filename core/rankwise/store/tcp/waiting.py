"""The requests that a server cannot answer yet: for which key each waits, and until when."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic

from rankwise.store.tcp import wire

__all__ = ["Waiter", "Waiting"]

#: A client has one request at a time on each connection.
_MAX_OF_ONE = 8
_MAX_COUNT = 64 << 10
_MAX_NBYTES = 256 << 20
_BATCH = 256


class Waiter:
    """A request that is not answered yet.

    Args:
        client: Who asks.
        request: What.
        nbytes: How large the request is.
    """

    def __init__(self, client: bytes, request: wire.Request, nbytes: int) -> None:
        self.client, self.nbytes = client, nbytes
        self.number = request.number
        self.patient = request.wait_s is not None
        #: What to do when the key has changed.
        self.operation, self.args = request.operation, tuple(request.args)
        self.until = monotonic() + (request.wait_s or 0.0)
        #: Whether it is among those that wait for a key; whether its time is watched.
        self.waiting = self.timed = False
        self.key = ""

    def __lt__(self, other: Waiter) -> bool:
        return self.until < other.until


class Waiting:
    """All of them, within bounds."""

    def __init__(self) -> None:
        #: Those that wait for each key, in the order they came.
        self._of_key: dict[str, dict[Waiter, None]] = {}
        self._count_of: Counter[bytes] = Counter()
        self._count = self._nbytes = 0
        self._timers: list[Waiter] = []

    def add(self, waiter: Waiter, key: str) -> bool:
        """Let a request wait for a key to change, or for its time to pass; tell whether there is room for it."""
        if (
            self._count_of[waiter.client] >= _MAX_OF_ONE
            or self._count >= _MAX_COUNT
            or self._nbytes + waiter.nbytes > max(_MAX_NBYTES, waiter.nbytes)
        ):
            return False
        self._change(waiter, 1)
        self._of_key.setdefault(key, {})[waiter] = None
        waiter.key = key
        if not waiter.timed:
            waiter.timed = True
            heapq.heappush(self._timers, waiter)
        return True

    def take(self, key: str) -> Iterator[Waiter]:
        """Take those that have waited for a key so far, one by one."""
        for waiter in list(self._of_key.get(key, ())):
            self._remove(waiter)
            yield waiter

    def withdraw(self, key: str, is_meant: Callable[[Waiter], bool]) -> None:
        """Forget those that are meant: nobody waits for their answers any more."""
        for waiter in [waiter for waiter in self._of_key.get(key, ()) if is_meant(waiter)]:
            self._remove(waiter)

    def has(self, key: str) -> bool:
        """Tell whether any wait for a key."""
        return key in self._of_key

    def take_late(self) -> Iterator[Waiter]:
        """Take those whose time is up, one by one."""
        now = monotonic()
        while self._timers and self._timers[0].until <= now:
            waiter = heapq.heappop(self._timers)
            waiter.timed = False
            if waiter.waiting:
                self._remove(waiter)
                yield waiter

    def patience_s(self) -> float | None:
        """Return how long it is until the next one's time is up; None for ever."""
        if len(self._timers) > 2 * self._count + _BATCH:
            for waiter in self._timers:
                waiter.timed = waiter.waiting
            self._timers = [waiter for waiter in self._timers if waiter.waiting]
            heapq.heapify(self._timers)
        while self._timers and not self._timers[0].waiting:
            heapq.heappop(self._timers).timed = False
        return max(0.0, self._timers[0].until - monotonic()) if self._timers else None

    def _remove(self, waiter: Waiter) -> None:
        line = self._of_key[waiter.key]
        del line[waiter]
        if not line:
            del self._of_key[waiter.key]
        self._change(waiter, -1)

    def _change(self, waiter: Waiter, change: int) -> None:
        waiter.waiting = change > 0
        self._count += change
        self._nbytes += change * waiter.nbytes
        self._count_of[waiter.client] += change
        if not self._count_of[waiter.client]:
            del self._count_of[waiter.client]
