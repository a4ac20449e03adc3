"""Several ranks on each of several hosts: shared memory inside, the network between."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import across
from machines import Hosts, between_hosts, run, started
from tests.by_reference import returned

PATIENCE_S = 60.0

pytestmark = between_hosts


@pytest.mark.parametrize("where", [[0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1]])
def test_everything_works_among_hosts_of_several_ranks(hosts: Hosts, tmp_path: Path, where: list[int]) -> None:
    assert run(hosts, tmp_path, where, across.everything) == ["right"] * len(where)


def test_the_ranks_of_a_host_share_memory(hosts: Hosts, tmp_path: Path) -> None:
    found = run(hosts, tmp_path, [0, 1, 1, 0], across.shape)
    assert found == [([0, 3], True), ([1, 2], True), ([1, 2], True), ([0, 3], True)]


def test_each_host_sends_an_array_only_once(hosts: Hosts, tmp_path: Path) -> None:
    for sent in run(hosts, tmp_path, [0, 0, 1, 1], across.between_nbytes):
        assert 4 << 20 < sent < 5 << 20  # 2(M-1)/M N of M hosts, and frames; a flat algorithm sends more


def test_a_mismatch_is_the_same_error_on_all_hosts(hosts: Hosts, tmp_path: Path) -> None:
    first, *others = run(hosts, tmp_path, [0, 0, 1, 1], across.disagree)
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


def test_asynchronous_calls_and_groups_that_cut_through_hosts(hosts: Hosts, tmp_path: Path) -> None:
    assert run(hosts, tmp_path, [0, 0, 1, 1], across.at_once_and_in_groups) == ["right"] * 4
