"""Ranks that wait for each other to make a group, and one of them dies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from rankwise.errors import DistError, PeerDiedError
from rankwise.observing import PrefixStore, Store, death_verdict, told_by

#: What a question to the place, which holds up a heartbeat, and telling it of a death may take: who keeps it may hang.
_ASK_S, _TELL_S = 0.5, 5.0


class WatchedMeeting:
    """A place where some ranks wait for each other.

    Args:
        place: The store where they wait for a key "verdict".
        ranks: All who must come.
        what: What they come for.
        hear: Told the verdict by each heartbeat that finds one; None if nobody wants to know.
    """

    def __init__(
        self, place: Store, ranks: tuple[int, ...], what: str, hear: Callable[[bytes], None] | None = None
    ) -> None:
        self._place, self.ranks, self._what, self.hear = place, ranks, what, hear
        self.began_at = monotonic()
        self._broken: DistError | None = None

    def verdict_within(self, store: Store) -> str:
        """Return the key of the verdict as another store has it, of which the place may be no part."""
        key, inner = "verdict", self._place
        while inner is not store:
            if not isinstance(inner, PrefixStore):
                return ""
            key, inner = f"{inner.prefix}/{key}", inner.underlying_store
        return key

    def ask(self) -> None:
        """Have the verdict heard from the place itself, which another rank may keep than the world's store."""
        with suppress(DistError):
            if self.hear is not None and (verdict := self._place.view(_ASK_S).peek("verdict")) is not None:
                self.hear(verdict)

    def break_up(self, error: PeerDiedError) -> None:
        """End it if a rank that has died must come."""
        if error.rank in self.ranks and self._broken is None:
            self._broken = told_by(death_verdict(error, self._what))
            with suppress(DistError):
                place = self._place.view(_TELL_S)
                place.compare_set("fewest", "", str(len(self.ranks) - 1))  # nobody stays to tell the dead
                place.compare_set("verdict", "", death_verdict(error, self._what))

    def leave(self, error: PeerDiedError) -> None:
        """End it for this rank: the rank that serves the store is out of reach, and can tell nobody."""
        self._broken = self._broken or error

    def look(self) -> None:
        """Raise if a rank that must come has died."""
        if self._broken is not None:
            raise self._broken
