"""Several ranks on each of several hosts: shared memory inside, the network between."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import across
from machines import Hosts, forbidden, run, started
from tests.by_reference import returned

PATIENCE_S = 60.0

REASON = forbidden()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON or "namespaces are permitted")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(2) as hosts:
        yield hosts


@pytest.mark.parametrize("where", [[0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1]])
def test_everything_works_among_hosts_of_several_ranks(hosts: Hosts, tmp_path: Path, where: list[int]) -> None:
    assert run(hosts, tmp_path, where, across.everything) == ["right"] * len(where)


def test_the_ranks_of_a_host_share_memory(hosts: Hosts, tmp_path: Path) -> None:
    found = run(hosts, tmp_path, [0, 1, 1, 0], across.shape)
    assert found == [([0, 3], True), ([1, 2], True), ([1, 2], True), ([0, 3], True)]


def test_each_host_sends_an_array_only_once(hosts: Hosts, tmp_path: Path) -> None:
    for sent in run(hosts, tmp_path, [0, 0, 1, 1], across.between_nbytes):
        assert isinstance(sent, int)
        assert 4 << 20 < sent < 5 << 20  # 2(M-1)/M N of M hosts, and frames; a flat algorithm sends more


def test_a_mismatch_is_the_same_error_on_all_hosts(hosts: Hosts, tmp_path: Path) -> None:
    first, *others = run(hosts, tmp_path, [0, 0, 1, 1], across.disagree)
    assert isinstance(first, list)
    assert len(first) == 2
    assert "(1,)" in first[0]
    assert "(3,)" in first[1]
    assert others == [first] * 3


@pytest.mark.parametrize("victim", [0, 1, 3])
def test_a_death_on_one_host_is_heard_of_on_all(hosts: Hosts, tmp_path: Path, victim: int) -> None:
    hears(hosts, tmp_path, victim, across.somebody_dies, victim)


@pytest.mark.parametrize(
    ("name", "victim"), [("reduce", 0), ("broadcast", 1), ("all_gather", 2), ("reduce_scatter", 3), ("all_reduce", 2)]
)
def test_a_death_in_the_middle_of_a_long_call_is_heard_of_on_all(
    hosts: Hosts, tmp_path: Path, name: str, victim: int
) -> None:
    hears(hosts, tmp_path, victim, across.somebody_dies_in_the_middle, name, victim)


def hears(hosts: Hosts, tmp_path: Path, victim: int, program: Callable[..., object], *arguments: object) -> None:
    """Expect that all others hear of a rank that dies."""
    with started(hosts, tmp_path, [0, 0, 1, 1], program, *arguments) as processes:
        for rank, process in enumerate(processes):
            out, err = process.communicate(timeout=PATIENCE_S)
            if rank != victim:
                assert out, err
                assert returned(out) == ("PeerDiedError", victim)


def test_asynchronous_calls_and_groups_that_cut_through_hosts(hosts: Hosts, tmp_path: Path) -> None:
    assert run(hosts, tmp_path, [0, 0, 1, 1], across.at_once_and_in_groups) == ["right"] * 4
