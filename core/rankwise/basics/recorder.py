"""Which recorder a world begins with: the compiled one of `rankwise-native`, else one that keeps nothing.

An observer that reads what is noted, as `rankwise-watch` does, puts its own in the place of the latter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from rankwise.basics import native
from rankwise.basics.recording import Entry, FlightRecorder, Ticket, Trail
from rankwise.basics.tracebacks import skipped

__all__ = ["SilentRecorder", "make_recorder"]


def make_recorder(capacity: int = 1024) -> FlightRecorder:
    """Return a recorder: of so many operations if it is compiled."""
    compiled = native.module()
    if compiled is None:
        return SilentRecorder()
    made: FlightRecorder = compiled.FlightRecorder(Entry, skipped, capacity)
    return made


def _nothing(self: object, *args: Any, **kwargs: Any) -> None:
    """Note nothing."""


class SilentRecorder:
    """A recorder for a world in which nobody reads what is noted."""

    on_failure: Callable[[Trail], object] | None = None

    count = clear = _nothing

    def trail(self, name: str, description: str, ranks: tuple[int, ...]) -> Trail:
        """Return a new group's trail."""
        return _SilentTrail(name, description, ranks)

    def trails(self) -> list[Trail]:
        """Return nothing."""
        return []

    def entries(self) -> list[Entry]:
        """Return nothing."""
        return []


class _SilentTrail:
    """A trail that only numbers operations, as works are called by their numbers."""

    failure, failed_ns = "", 0

    end = released = asked = ended = broken = waited = _nothing

    def __init__(self, name: str, description: str, ranks: tuple[int, ...]) -> None:
        self.name, self.description, self.ranks = name, description, ranks
        self._collectives, self._messages = count(), count()
        self._last = threading.local()

    def begin(self, op: str, array: Any = "cpu", frames: int = 3) -> None:
        self._last.begun = [self, op, next(self._collectives)]

    def issued(self) -> Ticket:
        return self._last.begun

    def begin_message(self, op: str, array: Any, peer: int | None, tag: int) -> Ticket:
        return [self, op, next(self._messages)]

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or f"{type(error).__name__}: {error}"

    def marks(self) -> tuple[Entry | None, Entry | None, Entry | None, Entry | None]:
        return None, None, None, None

    def totals(self) -> Mapping[str, tuple[int, ...]]:
        return {}
