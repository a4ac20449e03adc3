"""Processes that do not form one world are all told so, in the same words; none of them is left waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rankwise as dist
from rankwise.errors import DistTimeoutError, RendezvousError
from rankwise_testing.suite.expect import error_of
from rankwise_testing.suite.place import JoinPlan
from rankwise_testing.suite.plugin import Kit

_TIMEOUT_S = 1.0


@pytest.fixture(autouse=True)
def _ranks_meet_in_a_store(kit: Kit) -> None:
    if kit.spec.runtime is not None:
        pytest.skip("the backend's runtime tells each process its rank, and knows who there is")


@pytest.mark.parametrize("rank", [0, 1])
def test_two_processes_that_claim_one_rank_are_named_to_all(kit: Kit, rank: int) -> None:
    text = _of_all(kit.run_outside(3, claim, rank))
    assert f"two processes claim rank {rank}" in text
    assert text.count(f"rank {rank} (host ") == 2, text


def claim(meeting: JoinPlan, rank: int, claimed: int) -> str:
    return str(_refused(meeting, claimed if rank == 2 else rank))


def test_world_sizes_that_disagree_are_named_to_all(kit: Kit) -> None:
    text = _of_all(kit.run_outside(3, miscount))
    assert "3 for rank " in text, text
    assert "4 for rank 2 " in text, text


def miscount(meeting: JoinPlan, rank: int) -> str:
    return str(_refused(replace(meeting, size=4) if rank == 2 else meeting, rank))


def test_a_rank_that_does_not_come_is_named_to_all_that_do(kit: Kit) -> None:
    *texts, nothing = kit.run_outside(3, stay_away)
    assert nothing is None
    text = _of_all(texts)
    assert "rank 2 of 3 did not come" in text, text


def stay_away(meeting: JoinPlan, rank: int) -> str | None:
    if rank == 2:
        return None
    error = error_of(DistTimeoutError, replace(meeting, timeout_s=_TIMEOUT_S).join, rank)
    assert not dist.is_initialized()
    return str(error)


def _refused(meeting: JoinPlan, rank: int) -> RendezvousError:
    error = error_of(RendezvousError, meeting.join, rank)
    assert not dist.is_initialized()
    return error


def _of_all(texts: list[str]) -> str:
    """Return what all ranks were told, which must be the same."""
    assert len(set(texts)) == 1, f"the ranks were told different things: {texts}"
    return texts[0]
