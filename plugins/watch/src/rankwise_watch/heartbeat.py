"""What each rank tells of itself every second: that it lives, and how far it has come.

Nobody is judged by the clock of the day, which jumps when it is set and when a machine wakes up. Ranks that have one
monotonic clock, as those of one machine, compare times by that; any other counts from when it saw a heartbeat first.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from time import monotonic, time
from typing import Any, NamedTuple

from rankwise.observing import Store, innermost

#: What is said of a rank on another machine of which nothing is heard.
UNKNOWN = "whether it lives, nobody here knows"


#: How many late answers are remembered: more than there can be while a rank is silent for as long as it may be.
_REMEMBERED = 64


class Beat(NamedTuple):
    """A rank's last heartbeat.

    Attributes:
        number: Counts up.
        clock: Which monotonic clock `at` is by, as `own_clock` tells; "" if that is not known.
        at: When, by that clock.
        day_at: When, by the clock of the day, for words alone.
        left: It has destroyed its groups.
        progress: How far it has come on each group, as `rankwise_watch.recorder` tells.
        is_told: Another rank of its host has told the store of it, which takes up to an interval longer.
    """

    number: int
    clock: str
    at: float
    day_at: float
    left: bool
    progress: dict[str, Any]
    is_told: bool = False

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
        self._store, self._rank, self.prefix = store, rank, prefix
        self._number = 0
        #: Whether others may tell of a rank: else a store takes a request for each key.
        self.may_be_told = getattr(innermost(store), "takes_many_keys", True)
        #: Finds heartbeats that ranks of this host have written; see `rankwise_watch.host_beats`.
        self.at_hand: Callable[[Sequence[int]], Mapping[int, bytes]] = lambda ranks: {}
        #: For each rank, its last beat's number and when this rank saw it first.
        self._seen: dict[int, tuple[int, float]] = {}

    def next(self, progress: dict[str, Any], left: bool = False) -> tuple[int, bytes]:
        """Return the next heartbeat's number and text."""
        self._number += 1
        return self._number, json.dumps([self._number, own_clock(), monotonic(), time(), left, progress]).encode()

    def give(self, progress: dict[str, Any], left: bool = False) -> None:
        """Send a heartbeat."""
        self._store.set(self._key(self._rank), self.next(progress, left)[1])

    def trade(
        self, text: bytes, told: Mapping[str, bytes], ranks: Sequence[int], keys: Sequence[str]
    ) -> tuple[dict[int, Beat], list[bytes | None]]:
        """Send a heartbeat, and what is told of others; return the last ones of some ranks and the values of some keys.

        All that is one request.
        """
        values = {self._key(self._rank): text, **told}
        found = self._store._set_and_peek(values, [*keys, *self._keys(ranks)])
        return self._newest(ranks, found[len(keys) :]), found[: len(keys)]

    def read(self, ranks: Sequence[int]) -> dict[int, Beat]:
        """Return the last heartbeat of some ranks; those that have given none are missing."""
        return self._newest(ranks, self._store._set_and_peek({}, self._keys(ranks)))

    def _newest(self, ranks: Sequence[int], found: Sequence[bytes | None]) -> dict[int, Beat]:
        """Return of each rank the newest of what it has sent, what has been told of it, and what is at hand."""
        sent, told, here = found[: len(ranks)], found[len(ranks) :] or [None] * len(ranks), self.at_hand(ranks)
        beats: dict[int, Beat] = {}
        for rank, *texts in zip(ranks, sent, told, map(here.get, ranks), strict=True):
            each = [beat._replace(is_told=way == 1) for way, text in enumerate(texts) if (beat := _beat(text))]
            if each:
                beats[rank] = max(each, key=lambda beat: beat.number)
        return beats

    def _keys(self, ranks: Sequence[int]) -> list[str]:
        told = [told_key(self.prefix, rank) for rank in ranks] if self.may_be_told else []
        return [*map(self._key, ranks), *told]

    def _key(self, rank: int) -> str:
        return f"{self.prefix}beat/{rank}"

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


class Lateness:
    """By how much the answers to this rank's own heartbeats came late: what others have sent comes as late.

    It tells how slow all is on the way there and back: this process, its machine, the store. It knows no clock.

    Args:
        every_s: How long after an answer the next one should come.
        began_at: When this rank has begun.
    """

    def __init__(self, every_s: float, began_at: float) -> None:
        self.every_s, self.answered_at = every_s, began_at
        self._late: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)

    def answered(self, at: float) -> float:
        """Note an answer; return how long ago the one before it was."""
        since_s, self.answered_at = at - self.answered_at, at
        if since_s > self.every_s:
            self._late.append((at, since_s - self.every_s))
        return since_s

    def within_s(self, since: float) -> float:
        """Return by how much those together were late that came after a time."""
        return sum(late_s for at, late_s in self._late if at > since)


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


def told_key(prefix: str, rank: int) -> str:
    """Return under which key others tell of a rank's heartbeats."""
    return f"{prefix}told/{rank}"


def _beat(text: bytes | None) -> Beat | None:
    """Return a heartbeat; None of a malformed one, as if there were none."""
    if text is not None:
        with suppress(ValueError, TypeError):
            number, clock, at, day_at, left, progress = json.loads(text)
            return Beat(int(number), clock, at, day_at, left, progress)
    return None
