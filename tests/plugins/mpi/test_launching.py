"""One unchanged example under every launcher: `rankwise run`, `mpiexec`, and the environment that srun gives."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 60.0

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"
RUN = [sys.executable, "-m", "rankwise", "run", "--backend", "mpi"]
WAYS = ("rankwise run", "mpiexec", "srun")


@pytest.fixture
def start(clean_environment, own_mpiexec):
    """Start a program on two ranks in one of the ways, and return how it ended."""
    ways = {
        "rankwise run": [*RUN, "-n", "2"],
        "mpiexec": [own_mpiexec, "-n", "2", sys.executable],
        "srun": [own_mpiexec, "-n", "2", sys.executable, str(HERE / "programs" / "as_srun.py")],
    }

    def run(way: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*ways[way], *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment())

    return run


@pytest.mark.parametrize("way", WAYS)
def test_each_launcher_starts_the_same_example(start, way):
    done = start(way, str(EXAMPLES / "hello.py"), "mpi")
    assert done.returncode == 0, done.stderr
    assert "hello from rank 0 of 2" in done.stdout
    assert "hello from rank 1 of 2" in done.stdout
    assert "1 + ... + 2 = 3" in done.stdout


@pytest.mark.parametrize("way", WAYS)
def test_each_launcher_trains_the_same_network(start, way):
    done = start(way, str(EXAMPLES / "data_parallel.py"), "--backend", "mpi", "--steps", "20")
    assert done.returncode == 0, done.stderr
    assert "parameters of all ranks are identical, bit for bit" in done.stdout


def test_the_exit_code_is_that_of_the_rank_that_failed(start, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(
        "import sys, rankwise as dist\n"
        "dist.init_process_group('mpi', timeout=20)\n"
        "dist.barrier()\n"
        "sys.exit(7 if dist.get_rank() == 1 else 0)\n"
    )
    done = start("rankwise run", str(script))
    assert done.returncode == 7, done.stderr


def test_sigterm_ends_all_ranks(clean_environment, tmp_path):
    script = tmp_path / "waits.py"
    script.write_text(
        "import os, rankwise as dist, signal\n"
        "dist.init_process_group('mpi', timeout=20)\n"
        "dist.barrier()\n"
        # One write a line: what an unbuffered print writes in two may come between what another rank prints.
        "os.write(1, b'%d\\n' % os.getpid())\n"
        "signal.pause()\n"
    )
    command = [*RUN, "-n", "2", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment()) as job:
        try:
            assert job.stdout is not None
            ranks = [os.pidfd_open(int(job.stdout.readline())) for _ in range(2)]
            job.send_signal(signal.SIGTERM)
            assert job.wait(timeout=PATIENCE_S) != 0
        finally:
            job.kill()
    for rank in ranks:
        assert select.select([rank], [], [], 10)[0], "a rank has outlived its launcher"
        os.close(rank)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-restarts", "1", "x.py"), "--max-restarts: not with this --backend"),
        (("--elastic", "x.py"), "--elastic: not with this --backend"),
        (("no-such.py",), "there is no script 'no-such.py'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(start, words, said):
    done = start("rankwise run", *words)
    assert done.returncode in (2, 127)
    assert said in done.stderr.replace("\n", " ")
