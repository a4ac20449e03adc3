"""Memory without a name, which goes with the last process that has it, and whose size nobody can change.

One rank of a host makes it, and the others open it by way of `/proc`, where the kernel lets the owner's own user in
and nobody else, until all have it. Every page is there before an array is: a page that is missing later would end the
process with SIGBUS.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from typing import NamedTuple

from rankwise.errors import UnsupportedOperationError
from rankwise_arrays.shared.room import readable

#: Of Linux 5.14: have all pages there, or fail.
_POPULATE_WRITE = 23
#: Of Linux 5.1: no more writes, but through mappings that there are.
_SEAL_FUTURE_WRITE = 0x10
#: How much is populated between two moments in which other threads of the process may go on.
_PIECE_NBYTES = 32 << 20
#: Pages of 2 MiB are asked for from so much on, where the system has them for shared memory (`shmem_enabled`).
HUGE_PAGE, HUGE_FROM_NBYTES = 2 << 20, 4 << 20


class Place(NamedTuple):
    """Where memory can be opened as long as its maker holds it: the process, its descriptor, and what it is."""

    process: int
    descriptor: int
    inode: int


def available() -> None:
    """See to it that this system has what is needed.

    Raises:
        UnsupportedOperationError: It has not.
    """
    if not (hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")):
        raise UnsupportedOperationError("shared arrays need Linux, with /proc (memfd_create, /proc/PID/fd)")


def create(nbytes: int) -> int:
    """Return the descriptor of new memory, all zeros; its pages take memory when they are used.

    Raises:
        MemoryError: This process may not make so much.
    """
    import fcntl

    held = -1
    try:
        # opens: the memory of shared arrays
        # reached by: processes of this user, and root, through /proc
        # guarded by: no name; its size is sealed
        # proved by: tests/plugins/arrays/test_shared.py
        held = os.memfd_create("rankwise-shared", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(held, 0o600)
        os.ftruncate(held, nbytes)
        fcntl.fcntl(held, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError as error:
        if held >= 0:
            os.close(held)
        raise _lacking(nbytes, error) from error
    return held


def place_of(held: int) -> Place:
    """Return where others can open memory."""
    return Place(os.getpid(), held, os.fstat(held).st_ino)


def open_place(place: Place, writeable: bool = True) -> int:
    """Return a descriptor of another process's memory.

    Raises:
        UnsupportedOperationError: The kernel refuses it, or something else is there.
    """
    path = f"/proc/{place.process}/fd/{place.descriptor}"
    try:
        # opens: the memory of shared arrays
        found = os.open(path, (os.O_RDWR if writeable else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise UnsupportedOperationError(
            f"{path} cannot be opened ({error.strerror}); the ranks of a host must be of one user, and none may be "
            f"protected from the others (prctl PR_SET_DUMPABLE), to share memory"
        ) from error
    if os.fstat(found).st_ino != place.inode:
        os.close(found)
        raise UnsupportedOperationError(f"{path} is not the memory that was to be shared")
    return found


def map_memory(held: int, nbytes: int, writeable: bool = True) -> mmap.mmap:
    """Return memory as this process sees it; the descriptor can be closed afterwards.

    Raises:
        MemoryError: There is no room for it among the addresses of this process, or no descriptor.
    """
    try:
        memory = mmap.mmap(held, nbytes, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writeable else 0))
        if nbytes >= HUGE_FROM_NBYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return memory  # a kernel without huge pages
        raise _lacking(nbytes, error) from error
    return memory


def populate(memory: mmap.mmap, held: int, begin: int, nbytes: int) -> None:
    """Have all pages of a part there, near the processor that asks for them.

    Raises:
        MemoryError: There is not enough memory.
    """
    try:
        for at in range(begin, begin + nbytes, _PIECE_NBYTES):
            memory.madvise(_POPULATE_WRITE, at, min(_PIECE_NBYTES, begin + nbytes - at))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise _lacking(nbytes, error) from error
        _allocate(held, begin, nbytes)  # a kernel before 5.14


def freeze(held: int) -> None:
    """Have nobody make a way to write to memory any more; those that there are stay, and are forgotten by all ranks."""
    import fcntl

    with suppress(OSError):  # a kernel before 5.1, where arrays that are mapped to be read must be enough
        fcntl.fcntl(held, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)


def _allocate(held: int, begin: int, nbytes: int) -> None:
    try:
        os.posix_fallocate(held, begin, nbytes)
    except OSError as error:
        raise _lacking(nbytes, error) from error


def _lacking(nbytes: int, error: OSError) -> MemoryError:
    remedies = {
        errno.EFBIG: "the limit of a file's size forbids it (`ulimit -f`)",
        errno.EMFILE: "this process has no free descriptor (`ulimit -n`)",
        errno.ENOMEM: "there is no room among this process's addresses (`ulimit -v`), or in the memory of the machine",
    }
    return MemoryError(f"{readable(nbytes)} of shared memory: {remedies.get(error.errno or 0, error.strerror)}")
