"""The container of `elastic-job.yaml`, as written there, in hosts with the pods' names: pods come, go and come back."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.processes import wait_until

from rankwise_network import secret

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from two_hosts import Hosts, forbidden

pytestmark = pytest.mark.skipif(bool(forbidden()), reason=forbidden() or "namespaces are permitted")

EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"
PODS = 3
PATIENCE_S = 60.0
#: By when a launcher that says nothing counts as gone: the process that would tell of its end is killed with the pod.
OUTAGE_S = "5"
#: Works until there is a file `end`; the first rank writes how many there are.
PROGRAM = """
import signal
import time
from pathlib import Path

import numpy as np
import rankwise as dist

dist.elastic.expect_notice(signal.SIGTERM, grace_s=20)
dist.init_process_group("gloo", enable_reconfigure=True, timeout=60)
state = dist.elastic.State(sum=np.zeros(10), step=0, over=False)


@dist.elastic.run(on_epoch=lambda epoch: epoch.rank == 0 and Path("size").write_text(str(epoch.size)), wait_s=20)
def work(state):
    while not state.over:
        ones, over = np.ones(10), np.array([float(Path("end").exists())])
        dist.all_reduce(ones)
        dist.all_reduce(over, dist.ReduceOp.MAX)
        state.sum += ones / dist.get_world_size()
        state.step, state.over = state.step + 1, bool(over[0])
        time.sleep(0.005)
        state.commit()


work(state)
assert (state.sum == state.step).all()
print("finished", flush=True)
dist.destroy_process_group()
"""


class Job:
    """The pods of the manifest, each with a network, processes, a name and mounts of its own; they share a folder.

    Args:
        folder: Their working directory.
        hosts: Where they are.
    """

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        self.folder, self._hosts = folder, hosts
        service, job = yaml.safe_load_all((EXAMPLES / "elastic-job.yaml").read_text())
        self._names = [f"{job['metadata']['name']}-{index}" for index in range(PODS)]
        pod = job["spec"]["template"]["spec"]
        assert pod["subdomain"] == service["metadata"]["name"]
        (self._container,) = pod["containers"]
        (mount,) = self._container["volumeMounts"]
        self._mounted = Path(mount["mountPath"])
        named = zip(self._hosts.addresses, self._names, strict=True)
        lines = [f"{address} {name}.{pod['subdomain']} {name}\n" for address, name in named]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        (folder / "mounted").mkdir()
        secret.new_file(folder / "mounted" / "job.secret")
        (folder / "train.py").write_text(PROGRAM)
        self.pods: list[subprocess.Popen[str]] = []

    def command(self) -> list[str]:
        """Return what the image runs with the manifest's arguments, but with two ranks, and begun without waiting."""
        (entry,) = [
            line for line in (EXAMPLES / "Dockerfile").read_text().splitlines() if line.startswith("ENTRYPOINT")
        ]
        program, *words = json.loads(entry.partition(" ")[2])
        arguments = self._container["args"]
        assert arguments[:2] == ["-n", "8"]
        return [sys.executable, "-m", program, *words, "-n", "2", "--last-call", "0.5", *arguments[2:]]

    def start(self, index: int) -> subprocess.Popen[str]:
        """Start a pod."""
        mounts = f"mount -t tmpfs none {self._mounted.parent}; mkdir {self._mounted}; "
        mounts += f"mount --bind mounted {self._mounted}; mount --bind hosts /etc/hosts; "
        inside = f"{mounts} hostname {self._names[index]}; exec {shlex.join(self.command())}"
        unshare = ["unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
        variables = {each["name"]: each["value"] for each in self._container["env"]}
        pod = subprocess.Popen(
            self._hosts.command(index, *unshare, "bash", "-ec", inside),
            env={**os.environ, **variables, "JOB_COMPLETION_INDEX": str(index), "RANKWISE_OUTAGE_LIMIT_S": OUTAGE_S},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.pods.append(pod)
        return pod

    def has_size(self, size: int) -> bool:
        """Tell whether so many ranks come to work together."""
        told = self.folder / "size"
        return wait_until(lambda: told.exists() and told.read_text() == str(size), PATIENCE_S)

    def close(self) -> None:
        for pod in self.pods:
            pod.kill()
            pod.communicate()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with Hosts(PODS) as hosts:
        made = Job(tmp_path, hosts)
        try:
            yield made
        finally:
            made.close()


def terminate(pod: subprocess.Popen[str]) -> str:
    """End a pod as Kubernetes does: process 1 gets SIGTERM, and has a grace; return what it has said."""
    (first,) = Path(f"/proc/{pod.pid}/task/{pod.pid}/children").read_text().split()
    os.kill(int(first), signal.SIGTERM)
    said, _ = pod.communicate(timeout=PATIENCE_S)
    return said


def test_pods_join_leave_and_come_again(job: Job) -> None:
    first, second = job.start(0), job.start(1)
    assert job.has_size(4)
    third = job.start(2)  # as after the patch that makes the job grow
    assert job.has_size(6)
    said = terminate(third)  # and after the one that makes it shrink
    assert third.returncode == 128 + signal.SIGTERM, said
    assert job.has_size(4), said
    second.kill()  # a pod that fails, with all that it runs; its index gets another one
    assert job.has_size(2)
    again = job.start(1)
    assert job.has_size(4)
    (job.folder / "end").touch()
    for pod in (first, again):
        said, _ = pod.communicate(timeout=PATIENCE_S)
        assert pod.returncode == 0, said
        assert said.count("finished") == 2, said
