"""How an attempt at a job has ended, as the launchers of several nodes tell each other."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Verdict"]


@dataclass(frozen=True)
class Verdict:
    """How an attempt has ended, for all nodes alike: the first that is given counts."""

    success: bool
    node_rank: int
    host: str
    exit_code: int
    text: str
    #: The signal by which the node's launcher was stopped; 0 if it ended otherwise.
    signal: int = 0
    #: Whether the node is lost, so that there is no other attempt.
    lost: bool = False

    @property
    def is_final(self) -> bool:
        """Whether there is no other attempt."""
        return self.lost or self.signal != 0
