"""User-level failure mitigation: going on after a rank has died, where the MPI library and its launcher allow it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

_ENABLED = "OMPI_MCA_mpi_ft_enable"


def job_survives_deaths() -> bool:
    """Tell whether this process runs under an Open MPI that was started with fault tolerance."""
    # mpirun --with-ft says so to its processes by this parameter; without, it ends the job when one of them dies,
    # and MPI_Comm_revoke interrupts nothing.
    value = os.environ.get(_ENABLED, "0")
    return "OMPI_COMM_WORLD_SIZE" in os.environ and value.strip().lower() in ("1", "true", "yes", "enabled")


def revoke(comm: MPI.Comm) -> None:
    """End every pending operation of a communicator, on all its ranks."""
    from mpi4py import MPI

    try:
        comm.Revoke()
    except (MPI.Exception, NotImplementedError):
        return  # it was revoked before, or the peers will hear of the failure by themselves


def failed_ranks(comm: MPI.Comm) -> list[int]:
    """Return the ranks in `comm` that are known to have died."""
    from mpi4py import MPI

    try:
        gone = comm.Get_failed()
    except (MPI.Exception, NotImplementedError):
        return []
    ranks = MPI.Group.Translate_ranks(gone, None, comm.Get_group())
    return [rank for rank in ranks if rank >= 0]


def acknowledge(comm: MPI.Comm) -> None:
    """Let receives from anyone go on although somebody has died."""
    from mpi4py import MPI

    try:
        comm.Ack_failed()
    except (MPI.Exception, NotImplementedError):
        return
