"""How MPI begins in this process: at the thread level that is wanted, within the time-out, or not at all."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from rankwise.errors import DistBackendError
from rankwise_mpi.library.launchers import check_before_init, started_by
from rankwise_mpi.process.watchdog import ended_after

_LEVELS = ("single", "funneled", "serialized", "multiple")


def begin(timeout_s: float) -> tuple[Any, bool]:
    """Return `mpi4py.MPI`, and whether MPI was initialised here.

    Args:
        timeout_s: How long the other ranks may take to initialise MPI; the process is ended after that.

    Raises:
        DistBackendError: MPI has been finalised already, or this library would end the process.
    """
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        # Importing would initialise MPI, and finalise it at the very end of the process, without a question.
        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
    from mpi4py import MPI

    if MPI.Is_finalized():
        raise DistBackendError("MPI has been finalised in this process, and cannot be initialised again")
    if MPI.Is_initialized():
        return MPI, False
    check_before_init(MPI.Get_library_version(), os.environ)
    wanted = _wanted_level()
    asked = (MPI.THREAD_SINGLE, MPI.THREAD_FUNNELED, MPI.THREAD_SERIALIZED, MPI.THREAD_MULTIPLE)[_LEVELS.index(wanted)]
    provided = _initialise(MPI, asked, timeout_s)
    if provided < asked:
        warnings.warn(
            f"the MPI library grants thread level {provided} where {wanted} ({asked}) was asked for; asynchronous "
            "operations make progress only in wait() and is_completed()",
            RuntimeWarning,
            stacklevel=2,
        )
    return MPI, True


def _wanted_level() -> str:
    wanted = os.environ.get("RANKWISE_MPI_THREADS", "multiple").strip().lower()
    if wanted not in _LEVELS:
        raise ValueError(f"RANKWISE_MPI_THREADS is {wanted!r}, but must be one of {', '.join(_LEVELS)}")
    return wanted


def _initialise(mpi: Any, level: int, timeout_s: float) -> int:
    started = started_by(os.environ)
    if started is None:
        return int(mpi.Init_thread(level))  # nobody to wait for
    launcher, size = started
    reason = (
        f"rankwise: init_process_group: MPI_Init_thread has not returned within the time-out of {timeout_s:g} s: not "
        f"all of the {size} processes that {launcher} has started have initialised MPI. It cannot be interrupted, so "
        f"process {os.getpid()} has been ended"
    )
    with ended_after(timeout_s, reason):
        return int(mpi.Init_thread(level))
