"""One and the same script starts under every launcher, by what that launcher sets and nothing else."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
from tests import warm
from tests.processes import free_port, variables

import rankwise
from rankwise.backends.registry import registry
from rankwise_network.launcher_env import from_environment

TIMEOUT_S = 60
SIZE = 3
ROOT = Path(rankwise.__file__).parents[2]
FOREIGN = re.compile("RANK|WORLD|MASTER|TORCHELASTIC|OMPI|PMI|SLURM|MPI_|SECRET|IFNAME")


#: What each launcher sets.
LAUNCHERS = {
    # It keeps the port itself, for a store of its own.
    "torchrun": "RANK={rank} LOCAL_RANK={rank} WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1"
    " MASTER_PORT={before} TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True",
    "open_mpi": "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK={rank}"
    " OMPI_COMM_WORLD_LOCAL_SIZE=3 PMIX_RANK={rank} PMIX_NAMESPACE=prterun-here-{job}@1",
    # It does not set the port.
    "mpich": "PMI_RANK={rank} PMI_SIZE=3 MPI_LOCALRANKID={rank} MPI_LOCALNRANKS=3 MASTER_PORT={job}",
    "srun": "SLURM_PROCID={rank} SLURM_LOCALID={rank} SLURM_NTASKS=3 SLURM_STEP_NUM_TASKS=3 SLURM_JOB_ID={job}"
    " SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node07 SLURM_JOB_NODELIST=node07",
}


def set_by(launcher: str, rank: int, job: int) -> dict[str, str]:
    """Return what a launcher sets for a rank of a job."""
    return variables(LAUNCHERS[launcher].format(rank=rank, job=job, before=job - 1))


def free_job(launcher: str) -> int:
    """Return a number for a job whose port nobody has."""
    for _ in range(100):
        job = free_port()
        try:
            with socket.create_server(("127.0.0.1", from_environment(env=set_by(launcher, 0, job)).master_port)):
                return job
        except OSError:
            continue
    raise AssertionError("no free port was found")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_environment_of_a_launcher_is_enough(launcher: str) -> None:
    plain = {name: value for name, value in os.environ.items() if not FOREIGN.search(name)}
    paths = [str(ROOT / "core"), *([] if "gloo" in registry.names() else [str(ROOT / "plugins/gloo_tcp/src")])]
    plain["PYTHONPATH"] = os.pathsep.join([*paths, plain.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    if not registry.availability("gloo"):
        pytest.skip(f"gloo: {registry.availability('gloo').reason}")
    job = free_job(launcher)
    ranks = [
        warm.start([str(ROOT / "examples/hello.py")], env={**plain, **set_by(launcher, rank, job)})
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
