"""Regrouping by itself, subgroups, states of odd values, and what is left behind."""

from __future__ import annotations

import alone
import numpy as np
import pytest

import rankwise as dist
from rankwise.backends import FutureWork
from rankwise_elastic.state import _agreed, _Standing
from rankwise_testing import run_ranks

PATIENCE_S = 120.0


def test_a_hundred_epochs_leave_nothing_behind() -> None:
    for (descriptors, threads), late in run_ranks(alone.regroups, 2, 100, timeout=PATIENCE_S):
        assert late[0] <= descriptors + 3  # the current group opens some only where a rank is found asleep
        assert late[1] == threads


def test_a_subgroup_is_made_again_of_those_that_are_left() -> None:
    *found, _ = run_ranks(alone.remade, 3, timeout=PATIENCE_S)
    for each in found:
        assert "make it again" in each.pop("said")
    assert found == [{"epoch": 2, "sum": 11.0, "ranks": [1, 0], "name": "trio"}] * 2


def test_values_of_every_kind_are_kept_and_passed_on() -> None:
    found = run_ranks(alone.states, 3, timeout=PATIENCE_S)
    assert found == [["dates", "empty", "later", "turned", "words"]] * 3


@pytest.mark.parametrize(
    ("standings", "in_step", "number"),
    [
        ([(0, -1), (0, -1)], [], 0),  # a job that begins
        ([(1, 0), (0, -1)], [0], 0),
        ([(1, 7), (1, 8), (0, -1)], [0, 1], 7),  # one was ahead: its last commit was completed by nobody
        ([(2, 9), (1, 7), (1, 30)], [0], 9),  # who was left behind receives, however far it has come by itself
        ([(3, 5), (3, 5), (3, 5)], [0, 1, 2], 5),
    ],
)
def test_ranks_go_on_from_the_newest_commit_that_all_in_step_have(
    standings: list[tuple[int, int]], in_step: list[int], number: int
) -> None:
    assert _agreed([_Standing(*each) for each in standings]) == (in_step, number)


def test_a_state_has_its_own_names_and_says_so() -> None:
    state = dist.elastic.State(step=0, weights=np.zeros(2))
    assert repr(state) == "State(step, weights; 0 commits)"
    with pytest.raises(AttributeError, match="State cannot have a value 'commit'"):
        state.commit = 1
    with pytest.raises(AttributeError, match="State has no value 'setp'; it has step, weights"):
        state.setp  # noqa: B018


def test_wishes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no size from 3 to 2"):
        dist.elastic.regroup(min_size=3, max_size=2)


def test_attempts_that_fail_again_and_again_end_at_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of two parts of a network do that both reach the store."""
    tried: list[str] = []

    def fails(uuid: str, *args: object, **terms: object) -> FutureWork:
        tried.append(uuid)
        work = FutureWork()
        work.fail(dist.DistNetworkError("the other part cannot be reached"))
        return work

    dist.init_process_group("gloo", enable_reconfigure=True)
    try:
        monkeypatch.setattr(dist, "reconfigure", fails)
        with pytest.raises(dist.DistTimeoutError, match="could not be made: the other part cannot be reached"):
            dist.elastic.regroup(timeout=0.2)
        assert len(tried) == len(set(tried)) > 1
    finally:
        dist.destroy_process_group()


def test_a_group_that_cannot_be_made_anew_is_refused() -> None:
    dist.init_process_group("gloo")
    try:
        with pytest.raises(ValueError, match="enable_reconfigure=True"):
            dist.elastic.regroup()
    finally:
        dist.destroy_process_group()
