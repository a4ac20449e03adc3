"""What a launcher tells of a rank that has died to those that wait for it in `init_process_group`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

#: Whichever process has come as a rank: its node is lost, and nobody has taken that's place.
EVERY = -1


@dataclass(frozen=True)
class Dead:
    """A rank that has died.

    Attributes:
        rank: Its rank.
        cause: How it ended, for the error.
        process: The number of its process, or `EVERY`, if its death does not end the job; else 0.
        size: Number of ranks of the job, if its death does not end that and nobody takes its place; else 0.
    """

    rank: int
    cause: str
    process: int = 0
    size: int = 0

    def is_awaited(self, first: bytes | None, seat: bytes | None, is_first_life: bool) -> bool:
        """Tell whether the ranks that meet wait for it: survivors may be making a group without it.

        Args:
            first: What the first rank to come has written of itself and of the meeting, if one has come.
            seat: What the process has written of itself that came as this rank, if one has.
            is_first_life: Whether the job's ranks meet for the first time.
        """
        if not self.process:
            return True
        with suppress(ValueError, LookupError, TypeError):
            if seat is not None:
                return self.process == EVERY or bool(json.loads(seat)["pid"] == self.process)
            if self.size:
                return is_first_life if first is None else bool(json.loads(first)["count"] == self.size)
        return False
