"""How a job, or an attempt at it, has ended, as the launchers of several nodes tell each other."""

from __future__ import annotations

from dataclasses import dataclass


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
    #: Whether the node is lost.
    lost: bool = False
    #: Whether all ranks are started again.
    again: bool = False

    @property
    def is_planned(self) -> bool:
        """Whether nothing has failed: all ranks are started again as a node has come, or leaves."""
        return self.again and self.exit_code == 0

    def told(self) -> str:
        """Tell of it."""
        if self.is_planned:
            what = "leaves" if self.lost else "has come"
        else:
            what = "is lost" if self.lost else "ended this attempt" if self.again else "ended the job"
        return f"node {self.node_rank} ({self.host}) {what}: {self.text}"
