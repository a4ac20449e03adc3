"""Several ranks on each of several hosts: shared memory inside, the network between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import across
import pytest
from machines import Hosts, between_hosts, run, started
from tests.by_reference import returned

PATIENCE_S = 60.0

pytestmark = between_hosts


@pytest.fixture(scope="module")
def returned_by(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What two ranks on each of two hosts return of programs that run one after the other."""
    names = ("everything", "at_once_and_in_groups", "between_nbytes", "disagree")
    found = run(hosts, tmp_path_factory.mktemp("hosts"), [0, 0, 1, 1], across.in_turn, *names)
    return {name: list(each) for name, each in zip(names, zip(*found, strict=True), strict=True)}


@pytest.mark.parametrize("name", ["everything", "at_once_and_in_groups"])
def test_all_calls_work_at_once_and_in_groups_that_cut_through_hosts(returned_by: dict[str, Any], name: str) -> None:
    assert returned_by[name] == ["right"] * 4


def test_everything_works_where_a_rank_is_alone_on_its_host(hosts: Hosts, tmp_path: Path) -> None:
    assert run(hosts, tmp_path, [0, 0, 1], across.everything) == ["right"] * 3


def test_the_ranks_of_a_host_share_memory_whatever_their_order(hosts: Hosts, tmp_path: Path) -> None:
    found = run(hosts, tmp_path, [0, 1, 1, 0], across.in_turn, "shape", "everything")
    assert found == [[(ranks, True), "right"] for ranks in ([0, 3], [1, 2], [1, 2], [0, 3])]


def test_each_host_sends_an_array_only_once(returned_by: dict[str, Any]) -> None:
    for sent in returned_by["between_nbytes"]:
        assert 4 << 20 < sent < 5 << 20  # 2(M-1)/M N of M hosts, and frames; a flat algorithm sends more


def test_a_mismatch_is_the_same_error_on_all_hosts(returned_by: dict[str, Any]) -> None:
    first, *others = returned_by["disagree"]
    assert len(first) == 2
    assert "(1,)" in first[0]
    assert "(3,)" in first[1]
    assert others == [first] * 3


@pytest.mark.parametrize(
    ("victim", "in_the_middle_of"),
    [
        *((victim, "") for victim in (0, 1, 3)),
        *[(0, "reduce"), (1, "broadcast"), (2, "all_gather"), (3, "reduce_scatter"), (2, "all_reduce")],
    ],
)
def test_a_death_on_one_host_is_heard_of_on_all(
    hosts: Hosts, tmp_path: Path, victim: int, in_the_middle_of: str
) -> None:
    with started(hosts, tmp_path, [0, 0, 1, 1], across.somebody_dies, victim, in_the_middle_of) as processes:
        for rank, process in enumerate(processes):
            out, err = process.communicate(timeout=PATIENCE_S)
            if rank != victim:
                assert out, err
                assert returned(out) == ("PeerDiedError", victim)
