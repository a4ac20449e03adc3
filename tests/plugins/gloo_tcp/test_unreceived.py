"""A rank that destroys a group says which messages it has never received."""

from __future__ import annotations

import logging

import numpy as np

import rankwise as dist
from rankwise_testing import RankPool


class _Heard(logging.Handler):
    """Keeps what the logger says."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def leave_without_receiving(nbytes: int) -> list[str]:
    """Send from rank 0 to rank 1, which leaves instead of receiving; return what each has said."""
    heard, logger = _Heard(), logging.getLogger("rankwise")
    logger.addHandler(heard)
    try:
        dist.init_process_group("gloo", timeout=30)
        if dist.get_rank() == 0:
            for tag in range(6):
                dist.isend(np.ones(nbytes, np.uint8), 1, tag=tag)
        dist.barrier()
        if dist.get_rank() == 1:  # nothing is left behind of what was received
            room = np.zeros(nbytes, np.uint8)
            dist.recv(room, 0, tag=0)
            assert room.all()
        dist.destroy_process_group()
    finally:
        logger.removeHandler(heard)
    return heard.said


def test_what_nobody_has_received_is_mentioned_when_the_group_is_destroyed(pool: RankPool) -> None:
    for nbytes in (10, 3_000_000):
        first, second, third = pool.run(leave_without_receiving, nbytes)
        assert (first, third) == ([], [])
        [said] = second
        assert "rank 1 has destroyed a group without having received" in said
        assert f"{nbytes} bytes from rank 0 (tag 1)" in said
        assert said.endswith("and 1 more")
