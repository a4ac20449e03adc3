"""What the environment says about this process's place in the job, whoever has started it.

torchrun's names come first: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. What they leave open is filled in from the
variables of Open MPI, PMIx, MPICH's PMI and Slurm, so that one script runs under every launcher.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Place", "expand_nodes", "from_environment", "local_rank"]

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_NODE_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
#: Slurm hosts listen to a port of this range that the job's number decides, so that jobs do not meet.
_FIRST_PORT, _PORTS = 20000, 20000


class Place(NamedTuple):
    """A process's place in its job."""

    rank: int
    world_size: int
    master_addr: str
    master_port: int


def from_environment(rank: int = -1, world_size: int = -1, env: Mapping[str, str] | None = None) -> Place:
    """Return this process's place; a rank or world size that is given goes before the environment.

    Raises:
        ValueError: A variable is missing or makes no sense; the message says which, and who would set it.
    """
    env = os.environ if env is None else env
    size = world_size if world_size != -1 else _number(env, _SIZES, "the number of ranks")
    here = rank if rank != -1 else _number(env, _RANKS, "this process's rank")
    if size < 1 or not 0 <= here < size:
        raise ValueError(f"env://: rank {here} is not in a world of {size}")
    return Place(here, size, _address(env, size), _port(env, size))


def local_rank(env: Mapping[str, str] | None = None) -> int | None:
    """Return this process's rank among those of its host, or None if no launcher has told."""
    env = os.environ if env is None else env
    name = next((name for name in _LOCAL_RANKS if env.get(name)), None)
    return None if name is None else _integer(env, name)


def expand_nodes(text: str) -> list[str]:
    """Return the names in a Slurm node list such as "node[01-04,7],gpu1".

    Raises:
        ValueError: It is not one.
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        match = re.fullmatch(r"([^\[\]]*)(?:\[([^\]]*)\])?([^\[\]]*)", part.strip())
        if match is None or len(names) > 1 << 20:
            raise ValueError(f"{text!r} is not a node list")
        before, ranges, after = match.groups()
        names += [before + after] if ranges is None else [before + number + after for number in _expand(ranges, text)]
    return names


def _expand(ranges: str, text: str) -> list[str]:
    numbers: list[str] = []
    for piece in ranges.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", piece)
        if match is None:
            raise ValueError(f"{text!r} is not a node list")
        first, last = match[1], match[2] or match[1]
        if int(last) - int(first) > 1 << 16:
            raise ValueError(f"{text!r} lists too many nodes")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def _address(env: Mapping[str, str], size: int) -> str:
    if env.get("MASTER_ADDR"):
        return env["MASTER_ADDR"]
    nodes = next((env[name] for name in _NODE_LISTS if env.get(name)), None)
    if nodes is not None:
        listed = expand_nodes(nodes)
        # All on this very host: no need to find out under which name it knows itself.
        return "127.0.0.1" if len(listed) == 1 else listed[0]
    if size == 1 or env.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(size) or env.get("MPI_LOCALNRANKS") == str(size):
        return "127.0.0.1"
    raise ValueError(
        "env://: MASTER_ADDR is not set: the host of rank 0. `rankwise run` and torchrun set it; by hand, export "
        "MASTER_ADDR and MASTER_PORT for every rank"
    )


def _port(env: Mapping[str, str], size: int) -> int:
    job = next(
        (
            env[name]
            for name in ("SLURM_JOB_ID", "PMIX_NAMESPACE", "PMI_JOBID", "OMPI_MCA_ess_base_jobid")
            if env.get(name)
        ),
        None,
    )
    if env.get("MASTER_PORT"):
        port = _integer(env, "MASTER_PORT")
        # There torchrun serves a store of its own kind, which this package does not speak to: ours is next to it.
        return port + 1 if env.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and port else port
    if job is not None:
        return _FIRST_PORT + _spread(job)
    if size == 1:
        return 0
    raise ValueError(
        "env://: MASTER_PORT is not set: a free port on the host of rank 0. `rankwise run` and torchrun set it"
    )


def _spread(job: str) -> int:
    from zlib import crc32

    return crc32(job.encode("utf-8", "surrogateescape")) % _PORTS


def _number(env: Mapping[str, str], names: tuple[str, ...], what: str) -> int:
    name = next((name for name in names if env.get(name)), None)
    if name is None:
        raise ValueError(
            f"env://: {names[0]} is not set: {what}. `rankwise run`, torchrun, mpiexec and srun set it, each under its "
            f"own name ({', '.join(names)})"
        )
    return _integer(env, name)


def _integer(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError as error:
        raise ValueError(f"env://: {name} must be a number, not {env[name]!r}") from error
