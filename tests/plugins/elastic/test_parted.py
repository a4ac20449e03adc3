"""Elastic jobs on two hosts whose network parts: one world goes on, and it is that of those that reach the store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from elastic_company import PATIENCE_S, Company
from elastic_network import Network
from tests.processes import wait_until
from two_hosts import Hosts, forbidden

from rankwise_network import secret

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


def test_a_launcher_that_is_cut_off_ends_its_ranks_and_its_node_comes_back(tmp_path: Path) -> None:
    environment = {**os.environ, "RANKWISE_SECRET_FILE": str(tmp_path / "secret"), "RANKWISE_OUTAGE_LIMIT_S": "3"}
    environment["RANKWISE_HEARTBEAT_LIMIT_S"] = "3"
    secret.new_file(tmp_path / "secret")
    words = ["run", "--elastic", "--nnodes", "1:2", "--rdzv-endpoint", "10.77.0.1:29500", "--no-python", "sh", "-c"]
    words.append("touch there-$RANK-$TORCHELASTIC_RESTART_COUNT; while [ ! -e go ]; do sleep 0.05; done")

    def start(host: int) -> subprocess.Popen[str]:
        command = hosts.command(host, sys.executable, "-m", "rankwise", *words)
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)

    def there(name: str) -> bool:
        return wait_until((tmp_path / f"there-{name}").exists, PATIENCE_S)

    with Hosts(2) as hosts, ExitStack() as stack:
        first, second = (stack.enter_context(start(host)) for host in (0, THERE))
        for process in (first, second):
            stack.callback(process.kill)
        assert there("0-0")
        assert there("1-0")
        hosts.part(THERE)
        assert first.stderr is not None
        assert "rank 1 went with it; the others go on" in first.stderr.readline()
        _, err = second.communicate(timeout=PATIENCE_S)
        assert (second.returncode, "node 0" in err) == (111, True), err
        hosts.join(THERE)
        again = stack.enter_context(start(THERE))
        stack.callback(again.kill)
        assert there("1-1")
        (tmp_path / "go").touch()
        assert [process.wait(PATIENCE_S) for process in (first, again)] == [0, 0]
