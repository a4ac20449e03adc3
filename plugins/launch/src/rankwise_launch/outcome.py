"""How an attempt at a job ended, as its node knows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankwise_launch.failures import Death
from rankwise_launch.verdict import Verdict
from rankwise_launch.worker import Worker


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        failed: The rank of this node that failed first, if any did.
        elsewhere: What another node's launcher has told of the end, if it was first.
        interrupted: The signal that ended the job, if one did.
        workers: All ranks of this node.
        deaths: The failures of ranks that have not ended the others.
    """

    failed: Worker | None
    elsewhere: Verdict | None
    interrupted: int | None
    workers: Sequence[Worker]
    deaths: Sequence[Death] = ()
