"""Memory that the ranks of one host share for one group: without a name, gone with the last process that has it."""

from __future__ import annotations

import mmap
import os
import secrets
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from rankwise.backends import Deadline
from rankwise.errors import DistTimeoutError
from rankwise_mpi.process.waiting import wait_until

#: As `Process.keep`.
Keep = Callable[[MPI.Request, Any], object]
#: What the memory begins with, by which it is known to be the right one.
MARK_NBYTES = 16


def open_page(comm: MPI.Intracomm, nbytes: int, deadline: Deadline, keep: Keep) -> mmap.mmap | None:
    """Return new memory that all members of a communicator share; None if some cannot reach it. All members call.

    Args:
        comm: The communicator.
        nbytes: How much memory.
        deadline: By when all must have called.
        keep: Keeps a request that was given up, with what MPI may still write to.

    Raises:
        DistTimeoutError: Not all members have come.
    """
    held = _new_page(nbytes) if comm.rank == 0 else -1
    try:
        place = np.frombuffer(_place_of(held), np.uint8).copy()
        _finish(comm.Ibcast(place, 0), place, deadline, keep)
        page = _map(place.tobytes(), nbytes)
        agreed = np.array([page is not None], np.uint8)
        _finish(comm.Iallreduce(MPI.IN_PLACE, agreed, MPI.MIN), agreed, deadline, keep)
    finally:
        if held >= 0:
            os.close(held)
    return page if agreed[0] else None


def _new_page(nbytes: int) -> int:
    """Return a descriptor of new memory, or -1."""
    try:
        # opens: the page at which ranks of `mpi` on a host meet
        # reached by: processes of this user, and root, through /proc
        # guarded by: a random mark is compared, which MPI has carried
        # proved by: tests/plugins/mpi/test_entry_barrier.py
        held = os.memfd_create("rankwise mpi entry", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        return -1
    os.ftruncate(held, nbytes)
    os.pwrite(held, secrets.token_bytes(MARK_NBYTES), 0)
    return held


def _place_of(held: int) -> bytes:
    """Return process, descriptor and mark."""
    mark = os.pread(held, MARK_NBYTES, 0) if held >= 0 else bytes(MARK_NBYTES)
    return struct.pack("=qq", os.getpid(), held) + mark


def _map(place: bytes, nbytes: int) -> mmap.mmap | None:
    """Return the memory at a place, or None if it cannot be reached from here, as from another container."""
    process, held = struct.unpack_from("=qq", place)
    try:
        # opens: the page at which ranks of `mpi` on a host meet
        found = os.open(f"/proc/{process}/fd/{held}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.pread(found, MARK_NBYTES, 0) != place[-MARK_NBYTES:]:
            return None  # another process has that number here
        return mmap.mmap(found, nbytes)
    except (OSError, ValueError):
        return None
    finally:
        os.close(found)


def _finish(request: MPI.Request, buffer: Any, deadline: Deadline, keep: Keep) -> None:
    try:
        if not wait_until(request.Test, deadline.remaining(), lambda: None):
            raise DistTimeoutError("not all members have come to open the group's entry barrier")
    except BaseException:
        keep(request, buffer)
        raise
