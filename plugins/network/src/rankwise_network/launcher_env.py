"""What the environment says about this process's place in the job, whichever launcher set it.

The variables of torchrun and `rankwise run` come first: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Those of Open MPI,
MPICH and Intel MPI (PMI), of Slurm, PMIx and Kubernetes fill in what these leave open: one script runs under all of
them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from rankwise_network import secret, slurm

__all__ = ["Assignment", "from_environment", "job_name", "local_rank", "node_0", "rank_and_size", "told_of_a_job"]

_SLURM_SIZES = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")


class Launcher(NamedTuple):
    """What a launcher tells, by the names of its variables."""

    name: str
    rank: str
    #: The number of ranks; the first that is set counts.
    sizes: tuple[str, ...]
    local_rank: str = ""
    #: How many are on this host: where these are all, they need no address.
    local_size: str = ""
    #: What names the job, the same on all its ranks and different for another job; the first that is set counts.
    jobs: tuple[tuple[str, ...], ...] = ()
    #: How the names begin of variables that speak of a job, whether or not they tell a rank.
    begins: tuple[str, ...] = ()


#: The first that tells a rank counts.
_LAUNCHERS = (
    Launcher("rankwise run or torchrun", "RANK", ("WORLD_SIZE",), "LOCAL_RANK", begins=("TORCHELASTIC_", "PET_")),
    Launcher(
        "Open MPI's mpirun",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        jobs=(("PMIX_NAMESPACE",), ("OMPI_MCA_ess_base_jobid",)),
        begins=("OMPI_COMM_WORLD_",),
    ),
    Launcher(
        "MPICH's or Intel's mpiexec",
        "PMI_RANK",
        ("PMI_SIZE",),
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        begins=("PMI_", "MPI_LOCAL", "HYDRA_", "PALS_", "MV2_COMM_"),
    ),
    Launcher(
        "srun",
        "SLURM_PROCID",
        _SLURM_SIZES,
        "SLURM_LOCALID",
        jobs=(("SLURM_JOB_ID", "SLURM_STEP_ID"),),
        begins=("SLURM_JOB", "SLURM_STEP", "SLURM_PROCID", "SLURM_NTASKS"),
    ),
    Launcher("a PMIx launcher", "PMIX_RANK", ("OMPI_COMM_WORLD_SIZE", *_SLURM_SIZES), begins=("PMIX_",)),
    Launcher(
        "a LeaderWorkerSet",
        "LWS_WORKER_INDEX",
        ("LWS_GROUP_SIZE",),
        jobs=(("LWS_LEADER_ADDRESS",),),
        begins=("LWS_",),
    ),
    Launcher("an indexed Job", "JOB_COMPLETION_INDEX", ("WORLD_SIZE",)),
)

#: Other variables that launchers and queueing systems set; and what the names of more begin with.
_OF_A_JOB = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("RANKWISE_SECRET_FD", "RANKWISE_SECRET_FILE", "PBS_JOBID", "LSB_JOBID", "JOB_COMPLETION_INDEX"),
}
_BEGINS_OF_A_JOB = (
    *(begin for launcher in _LAUNCHERS for begin in launcher.begins),
    *("FLUX_JOB", "FLUX_TASK", "ALPS_APP", "JSM_"),
)

#: The port where none is given: the job's name picks one of these, below those that systems give out by themselves.
_FIRST_PORT, _PORTS = 15000, 14000

_NOT_A_RANK = (
    "env://: this process has not inherited the job secret of rank {rank}, by which `rankwise run` knows its ranks: "
    "another process has started it. To take part as that rank it needs the descriptor RANKWISE_SECRET_FD={number} "
    "(`pass_fds` of subprocess); to begin a job of its own, start it with `rankwise run`"
)


class Assignment(NamedTuple):
    """A process's place in its job."""

    rank: int
    world_size: int
    master_addr: str
    master_port: int
    #: Where the address and port come from, if not from the usual variables; for messages.
    origin: str = ""
    #: Whether `rankwise run` serves a store there, so that rank 0 does not.
    is_served: bool = False
    #: Where ranks meet that `rankwise run` has sent to a server; else "".
    url: str = ""


def from_environment(rank: int = -1, world_size: int = -1, env: Mapping[str, str] | None = None) -> Assignment:
    """Return this process's place; a rank or world size that is given goes before the environment.

    Raises:
        ValueError: A variable is missing or makes no sense; the message says which, and who would set it.
    """
    env = os.environ if env is None else env
    here, size = rank_and_size(rank, world_size, env)
    address, port, origin = _master(env, size)
    served, _, master = env.get("RANKWISE_STORE", "").rpartition("@")  # not for another master or secret
    is_launchers = bool(served) and master == f"{address}:{env.get('MASTER_PORT')}"
    if size == 1 and ((is_launchers and world_size == 1) or secret.is_withheld(env)):
        # A world of the program's own within a job, and a process that a rank has started, meet nobody. The only rank
        # of a job may meet others that come late.
        return Assignment(here, size, "127.0.0.1", 0)
    if is_launchers and secret.is_withheld(env):
        raise ValueError(_NOT_A_RANK.format(rank=here, number=env["RANKWISE_SECRET_FD"]))
    if is_launchers and not secret.is_set():
        if not served.isdecimal():
            return Assignment(here, size, address, port, url=served)
        return Assignment(here, size, address, int(served), f"where `rankwise run` serves a store for {master}", True)
    if port == 0 and size > 1:
        raise ValueError(f"env://: MASTER_PORT=0 is for a world of one; {size} ranks have to know the port")
    return Assignment(here, size, address, port, origin)


def rank_and_size(rank: int = -1, world_size: int = -1, env: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Return this process's rank and the number of ranks, for ranks that meet in another place than rank 0's.

    Raises:
        ValueError: A variable is missing or makes no sense; the message says which, and who would set it.
    """
    env = os.environ if env is None else env
    here = _rank(env) if rank == -1 else rank
    size = _size(env) if world_size == -1 else world_size
    if size < 1 or not 0 <= here < size:
        raise ValueError(f"env://: rank {here} is not in a world of {size}")
    return here, size


def local_rank(env: Mapping[str, str] | None = None) -> int | None:
    """Return this process's rank among those of its host, or None if no launcher has told."""
    env = os.environ if env is None else env
    name = _first(env, [launcher.local_rank for launcher in _LAUNCHERS])
    return None if name is None else _number(env, name)


def node_0(env: Mapping[str, str] | None = None) -> tuple[str, int]:
    """Return where the launchers of several nodes may meet, and a port; "" and 0 for what nothing tells.

    Raises:
        ValueError: What is told makes no sense.
    """
    env = os.environ if env is None else env
    # Who has set a rank too has told that rank where the others are, and no launcher: a launcher around this one.
    told = [prefix for prefix in ("PET_", "") if prefix or not env.get("RANK")]
    address = _first(env, [f"{prefix}MASTER_ADDR" for prefix in told])
    port = _first(env, [f"{prefix}MASTER_PORT" for prefix in told])
    place = env[address] if address else slurm.first_node(env) or env.get("LWS_LEADER_ADDRESS", "")
    if port:
        return place, _number(env, port)
    return place, _derived_port(job_name(env)) if place and job_name(env) else 0


def told_of_a_job(env: Mapping[str, str] | None = None) -> str:
    """Return the name of a variable that speaks of a job of several processes, "" if there is none.

    Where there is none, a process may be a world of its own. Where there is one that does not tell all that is needed,
    it must not: it was meant to be one of many.
    """
    env = os.environ if env is None else env
    told = (name for name in sorted(env) if name in _OF_A_JOB or name.startswith(_BEGINS_OF_A_JOB))
    return next((name for name in told if env[name]), "")


# ---------------------------------------------------------------------- rank and size


def _rank(env: Mapping[str, str]) -> int:
    name = _first(env, [launcher.rank for launcher in _LAUNCHERS])
    if name is None:
        others = ", ".join(f"{launcher.rank} of {launcher.name}" for launcher in _LAUNCHERS[1:])
        told = told_of_a_job(env)
        raise ValueError(
            "env://: RANK is not set. `rankwise run` and torchrun set it, other launchers set one that does as well "
            f"({others}); by hand, set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. For a world of one, pass rank=0 "
            "and world_size=1" + (f": {told} speaks of a job of several processes" if told else "")
        )
    return _number(env, name)


def _size(env: Mapping[str, str]) -> int:
    rank, told = next(((each.rank, each.sizes) for each in _LAUNCHERS if env.get(each.rank)), ("", ("WORLD_SIZE",)))
    if rank == "SLURM_PROCID" and not env.get("WORLD_SIZE") and slurm.is_batch_script(env):
        return slurm.tasks_of_batch_script(env)
    name = _first(env, told)
    size = None if name is None else _number(env, name)
    if env.get("WORLD_SIZE"):
        wanted = _number(env, "WORLD_SIZE")
        if size not in (None, wanted):
            raise ValueError(f"env://: WORLD_SIZE={wanted}, but the launcher has started {size} ranks ({name})")
        return wanted
    if size is None:
        raise ValueError(
            f"env://: {told[0]} is not set: the number of ranks. Whatever set the rank should set it too; by hand, "
            "set both RANK and WORLD_SIZE"
        )
    return size


# ---------------------------------------------------------------------- where rank 0 is


def _master(env: Mapping[str, str], size: int) -> tuple[str, int, str]:
    address, port = env.get("MASTER_ADDR") or _address(env, size), env.get("MASTER_PORT")
    if not port:
        number = _port(env, size)
        return address, number, f"port {number} was derived from the job's name, as MASTER_PORT is not set"
    number = _number(env, "MASTER_PORT")
    if number >= 1 << 16:
        raise ValueError(f"env://: MASTER_PORT={number} is no port")
    if env.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or number == 0:
        return address, number, ""
    # torchrun serves a store of its own there, which speaks another language; ours goes to the port beside it.
    beside = number + 1 if number + 1 < 1 << 16 else number - 1
    origin = (
        f"torchrun keeps MASTER_PORT={number} for itself, so rankwise uses port {beside}; if that is taken, set "
        "MASTER_PORT to another port and TORCHELASTIC_USE_AGENT_STORE=False for every rank"
    )
    return address, beside, origin


def _address(env: Mapping[str, str], size: int) -> str:
    local_sizes = ((env.get(each.local_size), env.get(each.sizes[0])) for each in _LAUNCHERS)
    if size == 1 or any(here and here == everywhere for here, everywhere in local_sizes):
        return "127.0.0.1"
    node = slurm.first_node(env) or env.get("LWS_LEADER_ADDRESS")
    if node:
        return node
    raise ValueError(
        "env://: MASTER_ADDR is not set: the host of rank 0. `rankwise run` and torchrun set it; otherwise set "
        "MASTER_ADDR and MASTER_PORT for every rank (`mpirun -x MASTER_ADDR=... -x MASTER_PORT=...`)"
    )


def _port(env: Mapping[str, str], size: int) -> int:
    if size == 1:
        return 0
    job = job_name(env)
    if job:
        return _derived_port(job)
    raise ValueError(
        "env://: MASTER_PORT is not set: a free port on the host of rank 0. `rankwise run` and torchrun set it; "
        "otherwise set the same MASTER_PORT for every rank"
    )


def _derived_port(job: str) -> int:
    return _FIRST_PORT + zlib.crc32(os.fsencode(job)) % _PORTS


def job_name(env: Mapping[str, str] | None = None) -> str:
    """Return a name that all ranks of this job have and no other job's, "" if no launcher tells one."""
    env = os.environ if env is None else env
    for names in (names for launcher in _LAUNCHERS for names in launcher.jobs):
        if env.get(names[0]):
            return ".".join(env.get(name, "") for name in names)
    if env.get("MPI_LOCALNRANKS") and env.get("MPI_LOCALNRANKS") == env.get("PMI_SIZE"):
        # MPICH's launcher tells no name, but all ranks of a host descend from the same process of it.
        return _ancestor("hydra_pmi_proxy")
    return ""


def _ancestor(command: str) -> str:
    """Return a name for the nearest process above this one that runs `command`, empty if there is none."""
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                before, _, after = file.read().rpartition(")")
        except OSError:
            return ""
        fields = after.split()
        if before.partition("(")[2] == command[:15]:
            return f"{command} {pid} {fields[19]}"  # with the time of its start, as numbers of processes come again
        pid = int(fields[1])
    return ""


# ---------------------------------------------------------------------- variables


def _first(env: Mapping[str, str], names: tuple[str, ...] | list[str]) -> str | None:
    return next((name for name in names if env.get(name)), None)


def _number(env: Mapping[str, str], name: str) -> int:
    text = env[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"env://: {name} must be a number, not {env[name][:80]!r}")
    return int(text)
