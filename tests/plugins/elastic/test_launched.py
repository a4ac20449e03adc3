"""Elastic jobs under `rankwise run --elastic`: the launcher serves the store, and starts again whoever fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.command_line import Launcher, Shell

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
