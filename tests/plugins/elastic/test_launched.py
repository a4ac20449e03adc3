"""Elastic jobs under `rankwise run --elastic`: the launcher serves the store, and starts again whoever fails."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.command_line import Launcher, Shell
from tests.core.node_launchers import Cluster
from tests.processes import wait_until

TIMEOUT_S = 90
PROGRAM = """
import os
import signal
import sys

import numpy as np
import rankwise as dist

rank, restarts = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo", enable_reconfigure=True, timeout=60)
state = dist.elastic.State(sum=np.zeros(10), step=0, sizes=[])


@dist.elastic.run(min_size=int(sys.argv[2]))
def work(state):
    while state.step < 40 or (state.step < 400 and dist.get_world_size() < int(sys.argv[2])):
        ones = np.ones(10)
        dist.all_reduce(ones)
        state.sum += ones / dist.get_world_size()
        state.step += 1
        state.sizes = [*state.sizes, dist.get_world_size()]
        if rank == 1 and restarts == 0 and state.step == 20:
            if sys.argv[1] == "leaves":
                dist.elastic.expect_notice(signal.SIGUSR2)
                os.kill(os.getpid(), signal.SIGUSR2)
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        state.commit()


work(state)
assert (state.sum == state.step).all()
print("sizes", sorted(set(state.sizes)), "steps", state.step)
dist.destroy_process_group()
"""

#: Ranks that work until there is a file `end`, and of which the first notes the sizes of all epochs.
UNTIL_TOLD = """
import time
from pathlib import Path

import numpy as np
import rankwise as dist

dist.init_process_group("gloo", enable_reconfigure=True, timeout=60)
state = dist.elastic.State(sum=np.zeros(10), step=0, over=False)


def note(epoch):
    if epoch.rank == 0:
        with open("sizes", "a") as file:
            print(epoch.size, file=file)


@dist.elastic.run(on_epoch=note, wait_s=20)
def work(state):
    while not state.over:
        ones, over = np.ones(10), np.array([float(Path("end").exists())])
        dist.all_reduce(ones)
        dist.all_reduce(over, dist.ReduceOp.MAX)
        state.sum += ones / dist.get_world_size()
        state.step, state.over = state.step + 1, bool(over[0])
        time.sleep(0.002)
        state.commit()


work(state)
assert (state.sum == state.step).all()
print("ranks", dist.get_world_size(), "steps", state.step)
dist.destroy_process_group()
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    (tmp_path / "job.py").write_text(PROGRAM)
    return Launcher(tmp_path, TIMEOUT_S)


def test_a_rank_that_is_killed_comes_back_into_the_running_job(launcher: Launcher) -> None:
    done = launcher.run("-n", "3", "--elastic", "--max-restarts", "2", "job.py", "dies", "3")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"sizes (.*)", done.stdout) == ["[3] steps 40"] * 3, done.stdout


def test_a_rank_that_leaves_is_not_started_again_and_the_others_go_on(launcher: Launcher) -> None:
    done = launcher.run("-n", "3", "--elastic", "--max-restarts", "2", "job.py", "leaves", "2")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"sizes (.*)", done.stdout) == ["[2, 3] steps 40"] * 2, done.stdout
    assert "exit code 75" in done.stderr
    assert "is not started again, as it has left the job" in done.stderr


def test_the_demo_kills_ranks_and_the_others_go_on(tmp_path: Path) -> None:
    done = Shell(tmp_path, TIMEOUT_S).run("demo", "--elastic")
    assert done.returncode == 0, done.stderr
    assert "rankwise run -n 4 --elastic --max-restarts 10 -m rankwise_launch.demo_elastic" in done.stdout
    for rank, left in ((2, 3), (1, 2)):
        killed = rf"rank 0 kills rank {rank}, process \d+\n.*\d+ ms later {left} ranks have summed again"
        assert re.search(killed, done.stdout), done.stdout
    assert "a newcomer has received the state from the others: 4 ranks make step" in done.stdout
    assert "no step was lost, none made twice" in done.stdout
    assert len((done.stdout + done.stderr).splitlines()) <= 15


# ---------------------------------------------------------------------- several nodes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "job.py").write_text(UNTIL_TOLD)
    made = Cluster(tmp_path, TIMEOUT_S)
    yield made
    made.end()


def has_size(cluster: Cluster, size: int) -> bool:
    sizes = cluster.folder / "sizes"
    return wait_until(lambda: sizes.exists() and sizes.read_text().split()[-1:] == [str(size)], TIMEOUT_S)


def test_a_job_goes_on_as_nodes_are_lost_come_back_and_come_late(cluster: Cluster) -> None:
    words = ("-n", "2", "--elastic", "--last-call", "0.2", "job.py")
    first, second = (cluster.begin(node, *words, nnodes="1:3") for node in (0, 1))
    assert has_size(cluster, 4)
    second.send_signal(signal.SIGKILL)
    assert has_size(cluster, 2)
    again = cluster.begin(None, *words, nnodes="1:3")
    assert has_size(cluster, 4)
    late = cluster.begin(None, *words, nnodes="1:3")
    assert has_size(cluster, 6)
    again.send_signal(signal.SIGTERM)
    assert has_size(cluster, 4)
    (cluster.folder / "end").touch()
    ends = cluster.finish(first, again, late)
    assert [code for code, _, _ in ends] == [0, 143, 0], ends
    done = re.findall(r"ranks 4 steps (\d+)", ends[0][1] + ends[2][1])
    assert (len(done), len(set(done))) == (4, 1), ends


def test_a_job_that_begins_with_one_rank_grows(cluster: Cluster) -> None:
    words = ("-n", "1", "--elastic", "--last-call", "0", "job.py")
    first = cluster.begin(0, *words, nnodes="1:2")
    assert has_size(cluster, 1)
    late = cluster.begin(None, *words, nnodes="1:2")
    assert has_size(cluster, 2)
    (cluster.folder / "end").touch()
    assert [code for code, _, _ in cluster.finish(first, late)] == [0, 0]
