"""The watcher of each rank: warnings, reports, deaths at any time, and who is not to be missed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import watched_programs as programs
from failing import all_hear

from rankwise_testing import RankPool

SOON_S = 5.0


@pytest.fixture(scope="module", params=["tcp", "shm"])
def ranks(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Three ranks that send a heartbeat five times a second, and have no patience."""
    env = {"RANKWISE_HEARTBEAT_S": "0.2", "RANKWISE_WARN_AFTER_S": "0.4"}
    with RankPool(3, env={**env, "RANKWISE_GLOO_TRANSPORT": request.param}) as pool:
        yield pool


@pytest.mark.parametrize("leaving", [False, True], ids=["called", "left"])
def test_an_operation_that_stands_still_is_told_of_once_and_then_goes_on(ranks: RankPool, leaving: bool) -> None:
    waiting, late, other = ranks.run(programs.standing_still, leaving)
    assert late == []
    for records in (waiting, other):
        assert len(records) == 1, records
        assert re.search(
            r"barrier #\d+ at \S+ on group 'default', rank \d: not done for \d s.*rank 1.* is alive", records[0]
        ), records[0]


def test_a_death_while_a_group_is_made_is_named_to_those_who_wait(ranks: RankPool) -> None:
    first, second, dead = ranks.run(programs.death_while_meeting, doomed=[2])
    assert dead is None
    told = "is gone: its process was killed by SIGKILL, during making group 'group-1'"
    all_hear((first, second), "PeerDiedError", "rank 2 on ", told, within_s=SOON_S)


def test_a_death_ends_the_groups_of_the_dead_and_no_other(ranks: RankPool) -> None:
    first, second, _ = ranks.run(programs.death_in_one_group, doomed=[2])
    assert first[0][:2] == second[0][:2] == first[1][:2] == second[1][:2]
    assert first[0][0] == "PeerDiedError"
    assert first[2] == second[2] == 2


def test_who_has_left_in_good_order_is_not_missed_when_its_process_ends(ranks: RankPool) -> None:
    first, _, third = ranks.run(programs.leaving_without_a_word, doomed=[1])
    all_hear((first, third), "PeerDiedError", "rank 1", "has destroyed the group", within_s=SOON_S)


def test_all_ranks_hear_the_same_of_an_abort(ranks: RankPool) -> None:
    told = ranks.run(programs.abort_of_one)
    assert {kind for kind, _, _ in told} == {"GroupAbortedError"}
    assert {text for _, text, _ in told} == {"group 'default' was aborted on rank 1 as it was told to"}


def test_a_report_follows_the_waits_to_the_rank_that_waits_for_nobody(ranks: RankPool) -> None:
    told = ranks.run(programs.chain_of_waits)[:1]
    all_hear(told, "DistTimeoutError", "waiting for rank 1; rank 2 last finished broadcast #", within_s=SOON_S)


def test_a_forked_child_is_told_off_and_harms_nobody(ranks: RankPool) -> None:
    assert ranks.run(programs.fork_with_a_group) == [["ForkedProcessError", "3.0"]] * 3
