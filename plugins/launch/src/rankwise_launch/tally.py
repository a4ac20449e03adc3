"""What an elastic job counts of its ranks, on one node or on all: restarts, losses, and whether it is finishing."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from rankwise.errors import DistError

if TYPE_CHECKING:
    from rankwise_stores import TCPStore

__all__ = ["SharedTally", "Tally"]


class Tally:
    """The counts of a job that has one node.

    Args:
        max_restarts: How many ranks may be started again.
    """

    def __init__(self, max_restarts: int) -> None:
        self._max_restarts = max_restarts
        self._counts = dict.fromkeys(("restarts", "lost", "finished"), 0)

    def take_restart(self) -> int | None:
        """Take one of the restarts; return how many are left then, None if there was none."""
        taken = self._add("restarts")
        return self._max_restarts - taken if taken <= self._max_restarts else None

    def lose(self) -> int:
        """Count a rank that has failed and is not started again; return how many there are."""
        return self._add("lost")

    def finish(self) -> None:
        """Note that a rank has ended well."""
        self._add("finished")

    def is_finishing(self) -> bool:
        """Tell whether some rank has ended well."""
        return self._add("finished", 0) > 0

    def _add(self, name: str, amount: int = 1) -> int:
        self._counts[name] += amount
        return self._counts[name]


class SharedTally(Tally):
    """The counts of all nodes, in the store of their launchers.

    Once that is gone so is node 0, which ends the job: until then this node counts for itself.

    Args:
        store: The store.
        attempt: The attempt that they are of.
        max_restarts: How many ranks may be started again.
    """

    def __init__(self, store: TCPStore, attempt: int, max_restarts: int) -> None:
        super().__init__(max_restarts)
        self._store, self._attempt = store, attempt

    def _add(self, name: str, amount: int = 1) -> int:
        with suppress(DistError):
            return self._store.add(f"{self._attempt}/{name}", amount)
        return super()._add(name, amount)
