"""Which algorithm runs, and what happens when the ranks are told different ones."""

from __future__ import annotations

import os

import numpy as np
import pytest
from failing import error_of

import rankwise as dist
from rankwise.backends import fitting_algorithm as fitting
from rankwise_gloo_tcp.collectives.selection import Selection, load
from rankwise_gloo_tcp.collectives.tables import MIXED, NETWORK
from rankwise_testing import run_ranks

TCP = {"RANKWISE_GLOO_TRANSPORT": "tcp"}


@pytest.mark.parametrize("table", [NETWORK, MIXED])
def test_each_table_has_a_line_for_every_call(table: dict[str, object]) -> None:
    for op in table:
        for nbytes in (0, 8, 1 << 20, 1 << 40):
            for size in (1, 2, 3, 5, 9, 17, 1000):
                assert fitting(op, nbytes, size, table)  # type: ignore[arg-type]


def test_options_count_more_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKWISE_GLOO_ALGORITHMS", "all_reduce=streamed, broadcast=derived")
    assert load({"algorithms": {"all_reduce": "along"}}).forced == {"all_reduce": "along", "broadcast": "derived"}


@pytest.mark.parametrize("wrong", ["all_redcue=along", "all_reduce=fast", "all_reduce"])
def test_what_does_not_exist_is_refused_with_what_does(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("RANKWISE_GLOO_ALGORITHMS", wrong)
    with pytest.raises(ValueError, match=r"there are .*(streamed|broadcast)"):
        load({})


def test_a_forced_algorithm_of_other_groups_gives_way_to_the_table() -> None:
    forced = Selection({"all_reduce": "streamed"})
    assert forced.choose_mixed("all_reduce", 1 << 20, 4) == "hosts"
    assert forced.choose("all_reduce", 8, 2) == "streamed"


def reduce_by(algorithm: str) -> None:
    os.environ["RANKWISE_GLOO_ALGORITHMS"] = f"all_reduce={algorithm}"
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in (1, 5, 1000, 300_001):
        for dtype in (np.float32, np.float16, np.int64):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
                a = (np.arange(count) % 10 + rank).astype(dtype)
                dist.all_reduce(a, op)
                expected = np.arange(count) % 10 * (size if op == dist.ReduceOp.SUM else 1)
                expected += sum(range(size)) if op == dist.ReduceOp.SUM else size - 1
                assert (a == expected.astype(dtype)).all()
    a = np.arange(200_000, dtype=np.float32)
    dist.all_reduce(a, dist.ReduceOp.AVG)
    assert (a == np.arange(200_000)).all()
    dist.destroy_process_group()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("algorithm", ["along", "streamed", "derived"])
def test_every_algorithm_gives_the_same(size: int, algorithm: str) -> None:
    run_ranks(reduce_by, size, algorithm, env=TCP)


def told_differently() -> str:
    os.environ["RANKWISE_GLOO_ALGORITHMS"] = f"all_reduce={['along', 'streamed'][int(os.environ['RANK'])]}"
    return str(error_of(lambda: dist.init_process_group("gloo", timeout=10)))


def test_ranks_that_are_told_different_algorithms_say_so() -> None:
    found = run_ranks(told_differently, 2, env=TCP)
    assert "None" not in found  # the later one may only hear that the other has given up
    assert any("told different algorithms: all_reduce=along and all_reduce=streamed" in text for text in found)
