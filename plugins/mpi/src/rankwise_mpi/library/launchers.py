"""Who started this process, and whether that launcher belongs to the MPI library in use.

With the wrong mpiexec each process believes that it is alone: N worlds of one instead of one world of N. MPI does not
say so; the variables that the launcher has left in the environment do.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rankwise.errors import DistBackendError


class _Launcher(NamedTuple):
    name: str
    size_variable: str


_OPENMPI = _Launcher("Open MPI's mpiexec", "OMPI_COMM_WORLD_SIZE")
_HYDRA = _Launcher("an mpiexec of MPICH's kin (Hydra)", "PMI_SIZE")
_SLURM = _Launcher("Slurm's srun", "SLURM_STEP_NUM_TASKS")
_RUN = _Launcher("rankwise run or torchrun", "WORLD_SIZE")

#: In this order: srun and `rankwise run` may themselves run inside another's environment.
_LAUNCHERS = (_OPENMPI, _HYDRA, _SLURM, _RUN)


def check_before_init(library: str, environ: Mapping[str, str]) -> None:
    """Raise if the process was started by a launcher under which this library would end it while initialising.

    Args:
        library: What `MPI_Get_library_version` says.
        environ: The environment.

    Raises:
        DistBackendError: MPICH or its kin under Open MPI's mpiexec.
    """
    if not _is_openmpi(library) and _OPENMPI.size_variable in environ and "PMI_RANK" not in environ:
        raise _mixed(_OPENMPI, int(environ[_OPENMPI.size_variable]), library)


def check_world(size: int, library: str, environ: Mapping[str, str]) -> None:
    """Raise if MPI sees one process where a launcher has started several.

    Args:
        size: Size of `MPI_COMM_WORLD`.
        library: What `MPI_Get_library_version` says.
        environ: The environment.

    Raises:
        DistBackendError: The launcher is not the library's; both are named. Or nobody has started the others.
    """
    if size > 1:
        return
    found = _found(environ)
    if found is not None:
        raise _mixed(*found, library)
    tasks = _tasks_of_batch_script(environ)
    if tasks:
        raise DistBackendError(
            f"this process runs in the batch script of Slurm's job {environ['SLURM_JOB_ID']}, but neither srun nor "
            f"mpiexec has started it: the others of the job's tasks ({tasks}) are not there. In the "
            f"script, write `srun --mpi={_interface(library)} python program.py`, or `rankwise run --backend mpi -n N "
            "program.py` for ranks on this node, `-n 1` for one"
        )


def started_by(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the launcher that has started several processes, this one among them, and how many; None if none has."""
    found = _found(environ)
    return None if found is None else (found[0].name, found[1])


def _tasks_of_batch_script(environ: Mapping[str, str]) -> str:
    """Return how many tasks Slurm's job is to have if this is its batch script; empty if nobody else is missing."""
    if {"SLURM_JOB_ID", "SLURM_PROCID"} <= environ.keys() and all(each[1] not in environ for each in _LAUNCHERS):
        tasks = environ.get("SLURM_NTASKS") or environ.get("SLURM_TASKS_PER_NODE", "")
        return "" if tasks == "1" else tasks
    return ""


def _found(environ: Mapping[str, str]) -> tuple[_Launcher, int] | None:
    for launcher in _LAUNCHERS:
        text = environ.get(launcher.size_variable, "")
        if text.isdigit() and int(text) > 1:
            return launcher, int(text)
    return None


def _mixed(launcher: _Launcher, started: int, library: str) -> DistBackendError:
    return DistBackendError(
        f"{launcher.name} has started {started} process{'es' * (started > 1)} "
        f"({launcher.size_variable}={started}), but the MPI library that mpi4py uses is {_short(library)}, which "
        f"does not know of the others: each would be rank 0 of 1. {_remedy(launcher, started, library)}"
    )


def _remedy(launcher: _Launcher, started: int, library: str) -> str:
    if launcher is _SLURM:
        return f"Use srun --mpi={_interface(library)} (srun --mpi=list shows what there is)"
    if launcher is _RUN:
        return f"Start the program with rankwise run --backend mpi -n {started}, or with the library's mpiexec"
    own = Path(sys.prefix, "bin", "mpiexec")
    mpiexec = str(own) if own.exists() else "the mpiexec that came with it"
    return f"Start the program with {mpiexec} -n {started}, or install the MPI library of that launcher"


def _interface(library: str) -> str:
    """Return by which interface srun and the library find each other."""
    return "pmix" if _is_openmpi(library) else "pmi2"


def _is_openmpi(library: str) -> bool:
    return "Open MPI" in library


def _short(library: str) -> str:
    """Return name and version, without what some libraries add on how they were built."""
    first = library.strip().splitlines()[0] if library.strip() else "unknown"
    return " ".join(first.partition(",")[0].replace("Version:", "").split())
