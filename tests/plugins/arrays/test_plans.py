"""Prepared calls on each backend."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise_local import local_world

PATIENCE_S = 30.0

HERE = Path(__file__).parent
sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
import plan_programs as programs  # noqa: E402
from ways import Ranks  # noqa: E402


@pytest.mark.parametrize("call", programs.PLANS)
def test_a_plan_fills_what_the_plain_call_fills(ranks: Ranks, call: str) -> None:
    ranks.run(3, programs.same_as_the_plain_call, call)


def test_every_call_has_its_test() -> None:
    from rankwise_arrays.plans import _COLLECTIVES

    assert {*programs.PLANS, "barrier"} == {*_COLLECTIVES}


def test_messages_and_barriers_can_be_prepared(ranks: Ranks) -> None:
    ranks.run(3, programs.messages_and_barriers)


def test_ranks_that_prepare_different_calls_are_named_on_all_backends(ranks: Ranks) -> None:
    for told in ranks.run(3, programs.ranks_that_differ):
        assert [odd for _, odd in told] == [(2,)] * 5
        same = "all_reduce tensor=float64[2] op=ReduceOp.SUM"
        assert told[0][0].endswith(
            f"rank 0: {same}; rank 1: {same}; rank 2: all_reduce tensor=float64[3] op=ReduceOp.SUM"
        )


def test_ranks_that_run_different_plans_are_told() -> None:
    with local_world(2, timeout=PATIENCE_S) as world:
        for told in world.run(programs.different_plans):
            assert "all_reduce" in told
            assert "broadcast" in told


@pytest.mark.parametrize(
    ("mistake", "kind", "words"),
    [
        (lambda: dist.prepare("all_reduced", np.ones(1)), ValueError, "no call 'all_reduced'; there are all_gather, "),
        (lambda: dist.prepare("all_reduce", np.ones(1), async_op=True), ValueError, "async_op is not for a plan"),
        (lambda: dist.prepare("all_reduce"), TypeError, "tensor"),
        (lambda: dist.prepare("barrier").wait(), ValueError, "no run of this plan of barrier was started"),
    ],
)
def test_a_mistake_is_named(mistake: Callable[[], Any], kind: type[Exception], words: str) -> None:
    def says_so() -> None:
        with pytest.raises(kind, match=words):
            mistake()

    with local_world(1, timeout=PATIENCE_S) as world:
        world.run(says_so)


def test_a_plan_is_run_once_at_a_time_and_until_it_is_closed() -> None:
    def ends() -> None:
        with dist.prepare("barrier") as plan:
            plan.start()
            with pytest.raises(ValueError, match="has not been waited for"):
                plan.start()
        for again in (plan, plan.start):
            with pytest.raises(ValueError, match="plan of barrier has been closed"):
                again()
        outside = dist.new_group([0])
        if dist.get_rank() == 1:
            with pytest.raises(ValueError, match="this rank is not in the group"):
                dist.prepare("barrier", group=outside)

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(ends)
