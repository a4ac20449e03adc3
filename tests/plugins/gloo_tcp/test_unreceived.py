"""A rank that destroys a group says which messages it has never received."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from failing import logged

import rankwise as dist
from rankwise.errors import DistError
from rankwise_testing import RankPool, run_ranks


def leave_without_receiving(nbytes: int) -> list[str]:
    """Send from rank 0 to rank 1, which leaves instead of receiving; return what each has said."""
    with logged() as said:
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
    return said


def leave_before_a_collective() -> list[str]:
    """Begin a collective on rank 0 only; return what each has said when it left."""
    with logged() as said:
        dist.init_process_group("gloo", timeout=30)
        if dist.get_rank() == 0:
            dist.broadcast(np.ones(10), 0, async_op=True)
            dist.send(np.ones(1), 1)
        else:
            dist.recv(np.ones(1), 0)  # what was sent before has come too
        with suppress(DistError):
            dist.destroy_process_group()
    return said


def test_a_collective_that_a_rank_has_not_made_is_mentioned_in_words() -> None:
    _, second = run_ranks(leave_before_a_collective, 2, env={"RANKWISE_GLOO_TRANSPORT": "tcp"}, timeout=60)
    assert second == ["rank 1 has destroyed a group without having received what rank 0 has sent for a collective"]


def test_what_nobody_has_received_is_mentioned_when_the_group_is_destroyed(pool: RankPool) -> None:
    for nbytes in (10, 3_000_000):
        first, second, third = pool.run(leave_without_receiving, nbytes)
        assert (first, third) == ([], [])
        [said] = second
        assert "rank 1 has destroyed a group without having received" in said
        assert f"{nbytes} bytes from rank 0 (tag 1)" in said
        assert said.endswith("and 1 more")
