"""Ranks that wait for each other to make a group, and one of them dies."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic

from rankwise.errors import DistError, PeerDiedError
from rankwise.groups.handshake import death_verdict, told_by
from rankwise.store import Store

__all__ = ["Meeting"]


class Meeting:
    """A place where some ranks wait for each other."""

    def __init__(self, place: Store, ranks: tuple[int, ...], what: str) -> None:
        self._place, self.ranks, self._what = place, ranks, what
        self.began_at = monotonic()
        self._broken: DistError | None = None

    def break_up(self, error: PeerDiedError) -> None:
        """End it if a rank that has died must come."""
        if error.rank in self.ranks and self._broken is None:
            self._broken = told_by(death_verdict(error, self._what))
            with suppress(DistError):
                self._place.compare_set("fewest", "", str(len(self.ranks) - 1))  # nobody stays to tell the dead
                self._place.compare_set("verdict", "", death_verdict(error, self._what))

    def leave(self, error: PeerDiedError) -> None:
        """End it for this rank: the rank that serves the store is out of reach, and can tell nobody."""
        self._broken = self._broken or error

    def look(self) -> None:
        """Raise if a rank that must come has died."""
        if self._broken is not None:
            raise self._broken
