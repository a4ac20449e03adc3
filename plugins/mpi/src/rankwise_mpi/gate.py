"""`Gate`: where the ranks of a group on one host meet before a blocking call of MPI, which knows no deadline.

Each rank has a cell in a page of memory that all share: the number of the last call that it has come to, and whether it
is about to give up. Who finds all others there goes on to the call. A rank whose time is over must not leave when
the others are going on at this very moment; so it says that it wavers, lets that become visible, and looks once more:
if all have come by now it goes on with them, if not it is gone for good. Who meets a waverer waits for its decision.

A rank that calls asynchronously cannot wait, and makes a nonblocking call, which MPI does not match with a blocking
one. It notes the first and the last of such calls in its cell as it passes by; who comes to one of them makes the
nonblocking call too. It may overwrite the note once it has met all others again: by then they have read it.

On several hosts a nonblocking reduction stands in, which costs a microsecond or two more.
"""

from __future__ import annotations

import mmap
import os
import platform
import secrets
import struct
from time import sleep

import numpy as np
from mpi4py import MPI

from rankwise.backends import Deadline
from rankwise.errors import DistTimeoutError
from rankwise_mpi.waiting import wait_until

__all__ = ["Gate", "open_gate"]

#: A cell is a cache line of 8 words, of which four are used; in front of the cells is a line for all.
_WORDS, _WORD_NBYTES = 8, 8
_CAME, _STATE, _FIRST, _LAST = range(4)
_MARK_NBYTES = 16
_HEED = _MARK_NBYTES // _WORD_NBYTES
#: How many looks there are to one that keeps MPI going, once a rank has not found the others at once.
_LOOKS_PER_PROBE = 4
#: What memory one rank writes the others must see in that order, which these processors promise.
_ORDERED = ("x86_64", "AMD64")

_HERE, _WAVERING, _GONE = 0, 1, 2
#: A store is visible to all cores long before.
_SETTLE_S = 0.001


class Gate:
    """The meeting place of one group.

    Args:
        page: The memory that all members share.
        rank: This process's rank in the group.
        comm: The group's communicator, on which MPI makes progress while this rank waits.
        first_looks: How often to look for the others at once.
    """

    def __init__(self, page: mmap.mmap, rank: int, comm: MPI.Intracomm, first_looks: int) -> None:
        self._page = page
        words = memoryview(page).cast("Q")
        # Not zero once any rank has wavered or passed by: mostly one look tells that all is as it should be.
        self._heed = words[_HEED : _HEED + 1]
        cells = words[_WORDS:]
        self._came, self._states, self._firsts, self._lasts = (
            cells[word::_WORDS] for word in (_CAME, _STATE, _FIRST, _LAST)
        )
        self._rank = rank
        self._comm = comm
        self._looks = 0
        self._stop: BaseException | None = None
        others = tuple(other for other in range(len(self._came)) if other != rank)
        #: What `come` looks at, for who cannot afford to call it: the numbers, the word to heed, this rank's place and
        #: those of the others among the numbers, and the looks.
        self.view = self._came, self._heed, rank, others, range(first_looks)

    def come(self, number: int) -> bool:
        """Come to a call; tell whether all are there to make a blocking one, so that this rank may go on.

        Args:
            number: Which of the group's calls it is; all ranks count alike.
        """
        came, heed, mine, others, looks = self.view
        try:
            came[mine] = number
            for other in others:  # one after the other, as who has come stays there
                for _ in looks:
                    if came[other] >= number:
                        break
                else:
                    return False
            return not heed[0] or self.settled
        except BaseException as stop:
            self.interrupted(stop)
            return False

    def interrupted(self, stop: BaseException) -> None:
        """Keep what has interrupted this rank as it came: the others count on it already.

        `test` raises it, to who can settle that with them.
        """
        self._stop = stop

    @property
    def settled(self) -> bool:
        """Whether all who have come are about to make a blocking call, although there was something to heed."""
        return not any(self._states) and self.alike

    def pass_by(self, first: int, last: int) -> None:
        """Note that this rank makes some calls asynchronously."""
        mine, noted = self._rank, self._lasts[self._rank]
        # The order of these lines is that in which the others see them.
        if not noted or noted < self._came[mine]:
            self._firsts[mine] = first
        self._lasts[mine] = last
        self._heed[0] = 1
        self._came[mine] = last

    @property
    def alike(self) -> bool:
        """Whether nobody passes by the call that all have come to."""
        number = self._came[self._rank]
        return not any(first <= number <= last for first, last in zip(self._firsts, self._lasts, strict=True))

    def test(self) -> bool:
        """Tell whether all are there and decided; `gone` then says whether one has left."""
        if self._stop is not None:
            stop, self._stop = self._stop, None
            raise stop
        if min(self._came) >= self._came[self._rank] and _WAVERING not in self._states:
            return True
        self._looks += 1
        if not self._looks % _LOOKS_PER_PROBE:
            self._comm.Iprobe(MPI.ANY_SOURCE, 0)  # others may be waiting for what MPI does in our calls only
        return False

    @property
    def gone(self) -> list[int]:
        """The members that have left and will not come to the call."""
        return [rank for rank, state in enumerate(self._states) if state == _GONE]

    def leave(self) -> bool:
        """Give up the call that this rank has come to; false if all have come meanwhile, so that it must go on."""
        self._states[self._rank] = _WAVERING
        self._heed[0] = 1
        sleep(_SETTLE_S)
        if min(self._came) >= self._came[self._rank]:
            self._states[self._rank] = _HERE
            while _WAVERING in self._states:
                sleep(_SETTLE_S)
            if not self.gone:
                return False
        self._states[self._rank] = _GONE
        return True

    def close(self) -> None:
        """Give the memory back."""
        for words in (self._heed, self._came, self._states, self._firsts, self._lasts):
            words.release()
        self._page.close()


def open_gate(comm: MPI.Intracomm, deadline: Deadline, first_looks: int) -> Gate | None:
    """Make the gate of a new group whose members are all on this host; None if they cannot share memory.

    All members call.

    Args:
        comm: The group's communicator.
        deadline: By when all must have called.
        first_looks: How often a rank looks for the others before it waits.

    Raises:
        DistTimeoutError: Not all have.
    """
    if platform.machine() not in _ORDERED:
        return None
    nbytes = _WORDS * _WORD_NBYTES * (comm.size + 1)
    held = _new_page(nbytes) if comm.rank == 0 else -1
    try:
        place = np.frombuffer(_place_of(held), np.uint8).copy()
        _finish(comm.Ibcast(place, 0), deadline)
        page = _map(place.tobytes(), nbytes)
        agreed = np.array([page is not None], np.uint8)
        _finish(comm.Iallreduce(MPI.IN_PLACE, agreed, MPI.MIN), deadline)
    finally:
        if held >= 0:
            os.close(held)
    return Gate(page, comm.rank, comm, first_looks) if page is not None and agreed[0] else None


def _new_page(nbytes: int) -> int:
    """Return a descriptor of new memory that has no name and vanishes with the last process that holds it."""
    try:
        held = os.memfd_create("rankwise mpi gate", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        return -1
    os.ftruncate(held, nbytes)
    os.pwrite(held, secrets.token_bytes(_MARK_NBYTES), 0)
    return held


def _place_of(held: int) -> bytes:
    """Return process, descriptor and mark."""
    mark = os.pread(held, _MARK_NBYTES, 0) if held >= 0 else bytes(_MARK_NBYTES)
    return struct.pack("=qq", os.getpid(), held) + mark


def _map(place: bytes, nbytes: int) -> mmap.mmap | None:
    """Return the memory at a place, or None if it cannot be reached from here, as from another container."""
    process, held = struct.unpack_from("=qq", place)
    try:
        found = os.open(f"/proc/{process}/fd/{held}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.pread(found, _MARK_NBYTES, 0) != place[-_MARK_NBYTES:]:
            return None  # another process has that number here
        return mmap.mmap(found, nbytes)
    except (OSError, ValueError):
        return None
    finally:
        os.close(found)


def _finish(request: MPI.Request, deadline: Deadline) -> None:
    if not wait_until(request.Test, deadline.remaining(), lambda: None):
        raise DistTimeoutError("not all members have come to open the group's gate")
