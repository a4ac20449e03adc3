"""Arrays on CUDA devices: only where the MPI library says that it can read their memory."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Any


def is_cuda_aware() -> bool:
    """Tell whether the MPI library in use says that it takes CUDA memory; false as long as none is in use."""
    return "mpi4py.MPI" in sys.modules and _query()


def synchronize() -> None:
    """Wait until the caller's current stream has written what MPI is about to read."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


@cache
def _query() -> bool:
    from mpi4py import MPI

    if not MPI.Is_initialized():
        return False
    for library in _loaded_libraries():
        # Open MPI and MPICH both export this extension of the standard.
        query: Any = getattr(ctypes.CDLL(library), "MPIX_Query_cuda_support", None)
        if query is not None:
            return bool(query())
    return False


def _loaded_libraries() -> list[str]:
    """Return the paths of the MPI libraries that this process has loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/libmpi" in line}
    return sorted(path for path in paths if Path(path).name.startswith("libmpi"))
