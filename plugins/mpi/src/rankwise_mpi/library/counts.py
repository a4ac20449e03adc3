"""How much one MPI call takes, and how more than that is cut or wrapped.

MPI counts in 32 bits up to its version 4, which has a second set of calls that count in 64.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpi4py import MPI

from rankwise.backends import Array

#: What mpi4py takes for a buffer: memory, count, type.
Message = tuple[Array, int, MPI.Datatype]

#: A size that every count can hold, for the building blocks of larger messages.
_BLOCK = 1 << 30


def largest_count() -> int:
    """Return the largest count or displacement that one call takes with the library in use."""
    return 2**62 if MPI.Get_version() >= (4, 0) else 2**31 - 1


def message(array: Array, nbytes: int, limit: int) -> Message:
    """Return the first `nbytes` bytes of an array as one message, however many they are."""
    if nbytes <= limit:
        return array, nbytes, MPI.BYTE
    return array, 1, _wrapped(nbytes)


def size_of(status: MPI.Status) -> int:
    """Return the number of bytes of a message that was met."""
    nbytes = status.Get_count(MPI.BYTE)
    # A count of 32 bits is undefined for a larger message; the elements have 64.
    return nbytes if nbytes >= 0 else status.Get_elements(MPI.BYTE)


def pieces(array: Array, limit: int) -> Iterator[Array]:
    """Yield consecutive flat views of at most `limit` elements each that make up the array; at least one."""
    flat = array.reshape(-1)
    for start in range(0, max(flat.size, 1), limit):
        yield flat[start : start + limit]


def _wrapped(nbytes: int) -> MPI.Datatype:
    """Return a new datatype of `nbytes` bytes: blocks, and what is left."""
    whole, rest = divmod(nbytes, _BLOCK)
    block = MPI.BYTE.Create_contiguous(_BLOCK)
    blocks = block.Create_contiguous(whole)
    both = MPI.Datatype.Create_struct([1, rest], [0, whole * _BLOCK], [blocks, MPI.BYTE]).Commit()
    block.Free()
    blocks.Free()
    return both
