"""Elastic jobs on two hosts whose network parts: one world goes on, and it is that of those that reach the store."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from elastic_company import PATIENCE_S, Company
from tests.processes import wait_until
from two_hosts import Hosts, forbidden

from rankwise_network import secret

pytestmark = pytest.mark.skipif(bool(forbidden()), reason=forbidden() or "namespaces are permitted")

#: The host that has no store.
THERE = 1
SERVER = """
import sys
import rankwise as dist

with dist.TCPStore("10.77.0.1", 0, is_master=True) as store:
    print(store.port, flush=True)
    sys.stdin.read()
"""


@contextmanager
def company(
    size: int, folder: Path, monkeypatch: pytest.MonkeyPatch, **terms: object
) -> Iterator[tuple[Hosts, Company]]:
    """Return two hosts, and a job whose even ranks are on the first, which serves the store."""
    secret = folder / "secret"
    secret.write_text(secrets.token_hex(32))
    secret.chmod(0o600)
    monkeypatch.setenv("RANKWISE_SECRET_FILE", str(secret))
    with Hosts(2) as hosts:
        command = hosts.command(0, sys.executable, "-c", SERVER)
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = f"tcp://10.77.0.1:{server.stdout.readline().strip()}"
            with Company(size, url, hosts.command, **terms) as job:
                yield hosts, job
        finally:
            server.communicate("", timeout=PATIENCE_S)


def test_who_is_cut_off_ends_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with company(4, tmp_path, monkeypatch, patience=8, wait_s=1) as (hosts, job):
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


def test_a_network_that_comes_back_soon_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with company(4, tmp_path, monkeypatch) as (hosts, job):
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
