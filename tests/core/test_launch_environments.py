"""One and the same script starts under every launcher, by what that launcher sets and nothing else."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import free_port

import rankwise
from rankwise.backends.registry import registry
from rankwise.meeting.launcher_env import from_environment

TIMEOUT_S = 60
SIZE = 3
ROOT = Path(rankwise.__file__).parents[2]
FOREIGN = re.compile("RANK|WORLD|MASTER|TORCHELASTIC|OMPI|PMI|SLURM|MPI_|SECRET|IFNAME")


def torchrun(rank: int, job: int) -> dict[str, str]:
    """Set what torchrun sets; it keeps the port itself for a store of its own."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(SIZE),
        "LOCAL_WORLD_SIZE": str(SIZE),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(job - 1),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def open_mpi(rank: int, job: int) -> dict[str, str]:
    """Set what Open MPI's mpirun sets."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(SIZE),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(SIZE),
        "PMIX_RANK": str(rank),
        "PMIX_NAMESPACE": f"prterun-here-{job}@1",
    }


def mpich(rank: int, job: int) -> dict[str, str]:
    """Set what MPICH's mpiexec sets, and the port, which it does not."""
    return {
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(SIZE),
        "MPI_LOCALRANKID": str(rank),
        "MPI_LOCALNRANKS": str(SIZE),
        "MASTER_PORT": str(job),
    }


def srun(rank: int, job: int) -> dict[str, str]:
    """Set what Slurm's srun sets."""
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NTASKS": str(SIZE),
        "SLURM_STEP_NUM_TASKS": str(SIZE),
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "node07",
        "SLURM_JOB_NODELIST": "node07",
    }


def free_job(variables: object) -> int:
    """Return a number for a job whose port nobody has."""
    for _ in range(100):
        job = free_port()
        try:
            with socket.create_server(("127.0.0.1", from_environment(env=variables(0, job)).master_port)):  # type: ignore[operator]
                return job
        except OSError:
            continue
    raise AssertionError("no free port was found")


@pytest.mark.parametrize("launcher", [torchrun, open_mpi, mpich, srun])
def test_the_environment_of_a_launcher_is_enough(launcher: object) -> None:
    plain = {name: value for name, value in os.environ.items() if not FOREIGN.search(name)}
    paths = [str(ROOT / "core"), *([] if "gloo" in registry.names() else [str(ROOT / "plugins/gloo_tcp/src")])]
    plain["PYTHONPATH"] = os.pathsep.join([*paths, plain.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    if not registry.availability("gloo"):
        pytest.skip(f"gloo: {registry.availability('gloo').reason}")
    job = free_job(launcher)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "examples/hello.py")],
            env={**plain, **launcher(rank, job)},  # type: ignore[operator]
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(SIZE)
    ]
    try:
        said = [process.communicate(timeout=TIMEOUT_S) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert [process.returncode for process in ranks] == [0] * SIZE, said
    for rank, (out, _) in enumerate(said):
        assert f"hello from rank {rank} of {SIZE}: " in out
    assert "1 + ... + 3 = 6" in said[0][0]
