"""The communicator from which all groups are made: a duplicate of `MPI_COMM_WORLD`, made by all ranks together.

Each step is a call that does not block, and an attempt whose time is up leaves it as it is: MPI cannot take such a call
back, and the ranks that come later will meet it. So the next attempt goes on with the step that the last one has left.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Generator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from mpi4py import MPI

from rankwise.backends import Deadline
from rankwise.errors import DistBackendError, DistTimeoutError
from rankwise_mpi.process.waiting import wait_until

_T = TypeVar("_T")
_MARK_NBYTES, _JOB_NBYTES, _HOST_NBYTES = 32, 8, 256


class Base(NamedTuple):
    """What the ranks know of each other.

    Attributes:
        comm: The duplicate.
        job: What tells its ranks from the processes of all other jobs of MPI.
        near: The ranks on this host.
        hosts: The name of each rank's host.
    """

    comm: MPI.Intracomm
    job: str
    near: frozenset[int]
    hosts: tuple[str, ...]


class Steps(Generic[_T]):
    """Steps that all ranks take together, in as many attempts as it needs.

    Args:
        steps: Yields the request of each step, and what MPI writes to; returns what comes of them.
        what: What they are for, for messages.
    """

    def __init__(self, steps: Generator[tuple[MPI.Request, Any], None, _T], what: str) -> None:
        self._steps, self._what = steps, what
        self._pending: tuple[MPI.Request, Any] | None = None

    def finish(self, timeout_s: float) -> _T:
        """Go on, and return what comes of the steps.

        Raises:
            DistTimeoutError: Not all ranks have come.
        """
        deadline = Deadline(timeout_s)
        while True:
            if self._pending is not None and not wait_until(self._pending[0].Test, deadline.remaining(), _see_nothing):
                raise DistTimeoutError(
                    f"{self._what}: not all of the {MPI.COMM_WORLD.size} ranks that MPI has started came within "
                    f"{round(timeout_s, 1):g} s"
                )
            try:
                self._pending = next(self._steps)
            except StopIteration as end:
                made: _T | None = end.value
                if made is None:
                    raise DistBackendError(
                        f"{self._what}: an interrupt has broken it off; start the job anew"
                    ) from None
                return made


def duplicate_steps(comm: MPI.Intracomm) -> Generator[tuple[MPI.Request, Any], None, MPI.Intracomm]:
    """Duplicate a communicator; errors on the duplicate are exceptions."""
    made, request = comm.Idup()
    yield request, made
    made.Set_errhandler(MPI.ERRORS_RETURN)
    return made


def base_steps() -> Generator[tuple[MPI.Request, Any], None, Base]:
    """Make the base."""
    comm = yield from duplicate_steps(MPI.COMM_WORLD)
    name = platform.node().encode()[:_HOST_NBYTES].ljust(_HOST_NBYTES, b"\0")
    mine = _mark_of_host() + os.urandom(_JOB_NBYTES) + name
    cards = bytearray(len(mine) * comm.size)
    yield comm.Iallgather(bytearray(mine), cards), cards
    each = [bytes(cards[i : i + len(mine)]) for i in range(0, len(cards), len(mine))]
    near = frozenset(rank for rank, card in enumerate(each) if card[:_MARK_NBYTES] == mine[:_MARK_NBYTES])
    if len(near) < comm.size:
        from rankwise_mpi.library.reductions import KERNELS

        trusted = KERNELS.trusted()
        everyone = bytearray(len(trusted) * comm.size)
        yield comm.Iallgather(trusted, everyone), (trusted, everyone)
        KERNELS.agree(everyone)
    names = tuple(card[_MARK_NBYTES + _JOB_NBYTES :].rstrip(b"\0").decode(errors="replace") for card in each)
    job = each[0][_MARK_NBYTES : _MARK_NBYTES + _JOB_NBYTES].hex()  # as rank 0 has drawn it
    return Base(comm, job, near, names)


def _mark_of_host() -> bytes:
    """Return what the ranks of one host have in common; whether they share memory is found out where that is needed."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        text = f"{platform.node()} {os.getuid()}"
    return hashlib.blake2b(text.encode(), digest_size=_MARK_NBYTES).digest()


def _see_nothing() -> None:
    """Return: there is nothing to take notice of yet."""
