"""Elastic jobs on two hosts whose network parts: one world goes on, and it is that of those that reach the store."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from elastic_company import PATIENCE_S, Company
from elastic_network import Network
from two_hosts import Hosts, forbidden

pytestmark = pytest.mark.skipif(bool(forbidden()), reason=forbidden() or "namespaces are permitted")

#: The host that has no store.
THERE = 1


@contextmanager
def company(size: int, count: int = 2, **terms: object) -> Iterator[tuple[Hosts, Company]]:
    """Return some hosts, and a job on all of them in turn; the first serves the store."""
    with Network(count) as network, Company(size, network.url, network.hosts.command, range(count), **terms) as job:
        yield network.hosts, job


def test_who_is_cut_off_ends_and_the_others_go_on() -> None:
    with company(4, patience=8, wait_s=1) as (hosts, job):
        for member in job.members:
            member.hear_epoch(4)
        here, there = job.members[::2], job.members[1::2]
        hosts.part(THERE)
        for member in here:
            member.hear_epoch(2)
        for member in there:
            assert member.process.wait(PATIENCE_S) == 1
            member.hear_all()
            assert [word["size"] for word in member.said if "size" in word] == [4], "it was in a world of its own"
        hosts.join(THERE)
        came = [job.start(host=THERE), job.start(host=THERE)]
        for member in (*here, *came):
            member.hear_last_size(4)
        job.finish()
        assert len({member.hear_end()["steps"] for member in (*here, *came)}) == 1


def test_a_network_that_comes_back_soon_changes_nothing() -> None:
    with company(4) as (hosts, job):
        for member in job.members:
            member.hear(lambda word: "summed_in" in word)
        hosts.part(THERE)
        with pytest.raises(subprocess.TimeoutExpired):
            job.members[0].process.wait(1.0)  # so long nobody reaches the other host
        hosts.join(THERE)
        job.finish()
        ends = [member.hear_end()["steps"] for member in job.members]
        assert len(set(ends)) == 1
        assert [word["size"] for word in job.members[0].said if "size" in word] == [4]


@pytest.mark.parametrize("both_ways", [True, False], ids=["both ways", "one way"])
def test_the_larger_part_goes_on_and_the_other_comes_back(both_ways: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of five ranks, on a host, do not reach two others on another one, and all reach the store."""
    monkeypatch.setenv("RANKWISE_OUTAGE_LIMIT_S", "2")
    with company(5, count=3) as (hosts, job):
        for member in job.members:
            member.hear(lambda word: "summed_in" in word)
        hosts.sever(1, 2)
        if both_ways:
            hosts.sever(2, 1)
        kept = job.members[:2] + job.members[3:5]  # ranks 1 and 4 are on host 1, rank 2 on host 2
        for member in kept:
            assert [rank for rank, *_ in member.hear_epoch(4)["left"]] == [2]
        assert not any(word.get("size") in (1, 2, 3) for word in job.members[2].said)
        hosts.mend(1, 2)
        if both_ways:
            hosts.mend(2, 1)
        for member in job.members:
            member.hear_last_size(5)
        job.finish()
        assert len({member.hear_end()["steps"] for member in job.members}) == 1


def test_a_newcomer_that_nobody_hears_is_told_so_and_the_others_go_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with company(2, count=3) as (hosts, job):
        for host in (0, 1):
            hosts.sever(2, host)
        hosts.mend(2, 0)  # the store's, which is rank 0's too
        for member in job.members:
            member.hear(lambda word: "summed_in" in word)
        newcomer = job.start(host=2, timeout=8)
        assert newcomer.process.wait(PATIENCE_S) == 1
        job.finish()
        assert len({member.hear_end()["steps"] for member in job.members}) == 1
        for member in (*job.members, newcomer):
            assert 3 not in {word.get("size") for word in member.said}
    said = capfd.readouterr().err
    assert "DistTimeoutError: regroup: timed out: the job goes on without this process" in said
    assert "do not hear each other over the network, though all reach the store" in said
