"""What each rank tells of itself every second: that it lives, and how far it has come.

Nobody is judged by the clock of the day, which jumps when it is set and when a machine wakes up. Ranks that have one
monotonic clock, as those of one machine, compare times by that; any other counts from when it saw a heartbeat first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from time import monotonic, time
from typing import Any, NamedTuple

from rankwise.errors import DistTimeoutError
from rankwise.store import Store

__all__ = ["Beat", "Beats", "own_clock", "setting"]


def setting(name: str, default: float) -> float:
    """Return a number of seconds from the environment; zero or less means never.

    Raises:
        ValueError: It is no number.
    """
    text = os.environ.get(name)
    try:
        value = float(text) if text else default
    except ValueError:
        raise ValueError(f"{name} is {text!r}, but must be a number of seconds") from None
    return value if value > 0 else float("inf")


class Beat(NamedTuple):
    """A rank's last heartbeat.

    Attributes:
        number: Counts up.
        clock: Which monotonic clock `at` is by, as `own_clock` tells; "" if that is not known.
        at: When, by that clock.
        day_at: When, by the clock of the day, for words alone.
        left: It has destroyed its groups.
        progress: How far it has come on each group, as `rankwise_watch.recorder` tells.
    """

    number: int
    clock: str
    at: float
    day_at: float
    left: bool
    progress: dict[str, Any]

    def age_s(self) -> float:
        """Return how long ago it was; between hosts this is as true as their clocks, and serves for words alone."""
        return max(0.0, monotonic() - self.at if self.is_by_own_clock() else time() - self.day_at)

    def is_by_own_clock(self) -> bool:
        """Tell whether its time can be compared with this process's."""
        return bool(self.clock) and self.clock == own_clock()


class Beats:
    """Everyone's heartbeats, in the store.

    Args:
        store: The store.
        rank: This rank.
        prefix: What their keys begin with.
    """

    def __init__(self, store: Store, rank: int, prefix: str = "") -> None:
        self._store, self._rank, self._prefix = store, rank, prefix
        self._number = 0
        #: For each rank, its last beat's number and when this rank saw it first.
        self._seen: dict[int, tuple[int, float]] = {}

    def give(self, progress: dict[str, Any], left: bool = False) -> None:
        """Send a heartbeat."""
        self._store.set(self._key(self._rank), self._next(progress, left))

    def trade(
        self, progress: dict[str, Any], ranks: Sequence[int], keys: Sequence[str]
    ) -> tuple[dict[int, Beat], list[bytes | None]]:
        """Send a heartbeat; return the last ones of some ranks and the values of some keys, all in one request."""
        text = self._next(progress).encode()
        found = self._store._set_and_peek(self._key(self._rank), text, [*keys, *map(self._key, ranks)])
        return _beats(zip(ranks, found[len(keys) :], strict=True)), found[: len(keys)]

    def _next(self, progress: dict[str, Any], left: bool = False) -> str:
        self._number += 1
        return json.dumps([self._number, own_clock(), monotonic(), time(), left, progress])

    def read(self, ranks: Sequence[int]) -> dict[int, Beat]:
        """Return the last heartbeat of some ranks; those that have given none are missing."""
        try:
            found = zip(ranks, self._store.multi_get(list(map(self._key, ranks)), timeout=0), strict=True)
        except DistTimeoutError:
            return _beats((rank, self._store.peek(self._key(rank))) for rank in ranks)
        return _beats(found)

    def _key(self, rank: int) -> str:
        return f"{self._prefix}beat/{rank}"

    def silent_s(self, rank: int, beat: Beat | None) -> float:
        """Return for how long a rank that has come has sent no heartbeat; None is the beat of one that never has.

        A rank may be cut off before its first beat, and is as silent then as one that stops later.
        """
        number = 0 if beat is None else beat.number
        counted, since = self._seen.get(rank, (None, 0.0))
        if counted != number:
            since = monotonic()
            self._seen[rank] = number, since
        return monotonic() - (beat.at if beat is not None and beat.is_by_own_clock() else since)

    def forgive(self) -> None:
        """Count everyone's silence from now on."""
        self._seen.clear()


def own_clock() -> str:
    """Return what tells this process's monotonic clock from others: the machine's start, and its time namespace."""
    return _clock_of(os.getpid())


@lru_cache(maxsize=2)
def _clock_of(pid: int) -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            boot = file.read().strip()
    except OSError:
        return ""
    with suppress(OSError):  # kernels before 5.6 have one for all
        boot += os.readlink(f"/proc/{pid}/ns/time")
    return boot


def _beats(found: Iterable[tuple[int, bytes | None]]) -> dict[int, Beat]:
    beats: dict[int, Beat] = {}
    for rank, raw in found:
        if raw is not None:
            with suppress(ValueError, TypeError):  # malformed: as if it had given none
                beats[rank] = Beat(*json.loads(raw))
    return beats
