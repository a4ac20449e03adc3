"""Ranks that wait for each other to make a group, and one of them dies."""

from __future__ import annotations

from contextlib import suppress

from rankwise.errors import DistError, PeerDiedError
from rankwise.store import Store

__all__ = ["Meeting"]


class Meeting:
    """A place where some ranks wait for each other."""

    def __init__(self, place: Store, ranks: tuple[int, ...], what: str) -> None:
        self._place, self._ranks, self._what = place, ranks, what
        self._broken: PeerDiedError | None = None

    def break_up(self, error: PeerDiedError) -> None:
        """End it if a rank that has died must come."""
        if error.rank in self._ranks and self._broken is None:
            self._broken = error
            with suppress(DistError):
                self._place.compare_set("fewest", "", str(len(self._ranks) - 1))  # nobody stays to tell the dead
                self._place.compare_set("verdict", "", f"{self._what}{error}")

    def look(self) -> None:
        """Raise if a rank that must come has died."""
        if self._broken is not None:
            raise self._broken
