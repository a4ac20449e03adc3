"""What each rank tells of itself every second: that it lives, and how far it has come."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic, time
from typing import Any, NamedTuple

from rankwise.errors import DistTimeoutError
from rankwise.store import Store

__all__ = ["Beat", "Beats", "setting"]


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
    """A rank's last sign of life.

    Attributes:
        number: Counts up.
        at: When, by the wall clock of its host.
        left: It has destroyed its groups.
        progress: How far it has come on each group, as `rankwise.watch.recorder` tells.
    """

    number: int
    at: float
    left: bool
    progress: dict[str, Any]

    def age_s(self) -> float:
        """Return how long ago it was; between hosts this is as true as their clocks."""
        return max(0.0, time() - self.at)


class Beats:
    """Everyone's signs of life, in the store."""

    def __init__(self, store: Store, rank: int) -> None:
        self._store, self._rank = store, rank
        self._number = 0
        #: For each rank, its last beat's number and when this rank saw it first.
        self._seen: dict[int, tuple[int, float]] = {}

    def give(self, progress: dict[str, Any], left: bool = False) -> None:
        """Give a sign of life."""
        self._number += 1
        self._store.set(_key(self._rank), json.dumps([self._number, time(), left, progress]))

    def read(self, ranks: Sequence[int]) -> dict[int, Beat]:
        """Return the last sign of life of some ranks; those that have given none are missing."""
        try:
            found = list(zip(ranks, self._store.multi_get([_key(rank) for rank in ranks], timeout=0), strict=True))
        except DistTimeoutError:
            found = [(rank, raw) for rank in ranks if (raw := self._store.peek(_key(rank))) is not None]
        beats: dict[int, Beat] = {}
        for rank, raw in found:
            with suppress(ValueError, TypeError):  # malformed: as if it had given none
                beats[rank] = Beat(*json.loads(raw))
        return beats

    def silent_s(self, rank: int, beat: Beat, same_clock: bool) -> float:
        """Return for how long a rank has given no sign of life."""
        number, since = self._seen.get(rank, (0, 0.0))
        if number != beat.number:
            since = monotonic()
            self._seen[rank] = beat.number, since
        return beat.age_s() if same_clock else monotonic() - since

    def forgive(self) -> None:
        """Begin anew to count everyone's silence."""
        self._seen.clear()


def _key(rank: int) -> str:
    return f"beat/{rank}"
