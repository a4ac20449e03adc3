"""Dense arrays of another memory order than C's, seen as the memory that their elements fill.

A transposed, Fortran or channels-last array is C-contiguous once its axes are in the order in which they lie: its
elements fill a piece of memory without gaps. Where the arrays of all ranks lie alike, collectives that treat all
elements alike work on that memory, without copies. See "Memory order" in docs/developers/core.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from rankwise.basics.arrays import Array, as_copy, assign
from rankwise.basics.systems import blake2b

#: From how many bytes on arrays are worked on where they lie; smaller ones are copied in about a microsecond.
LEAST_NBYTES = 64 << 10


class Reordered(NamedTuple):
    """A dense array that is not C-contiguous.

    Attributes:
        array: The array.
        memory: Its memory, C-contiguous, in the shape that the ranks compare.
        mark: A number below zero that stands for the order: if two arrays have the same, and memory of one shape, each
            element of one lies where that of the other does.
    """

    array: Array
    memory: Array
    mark: int

    def in_order(self) -> Array:
        """Return a copy of the elements in C order, in the shape that the ranks compare."""
        return as_copy(self.array).reshape(self.memory.shape)

    def fill(self, values: Array) -> None:
        """Put elements in C order where they belong."""
        assign(self.array, values.reshape(self.array.shape))


def reordered(array: Array, flat: bool = False) -> Reordered | None:
    """Return a NumPy array as its memory, if it is dense, of another order than C's, and large.

    `flat`: the ranks compare the number of elements, not the shape.
    """
    if array.nbytes < LEAST_NBYTES or array.flags.c_contiguous:
        return None
    axes = _axes(array)
    lain = array.transpose(axes)
    if not lain.flags.c_contiguous:
        return None
    if flat:
        return Reordered(array, lain.reshape(-1), _mark(axes, array.shape))
    return Reordered(array, lain.reshape(array.shape), _mark(axes))


def _axes(array: Array) -> tuple[int, ...]:
    """Return the axes of an array in the order in which they lie; those of length 1, which lie anywhere, come first."""
    shape, strides = array.shape, array.strides
    return tuple(sorted(range(array.ndim), key=lambda axis: (shape[axis] != 1, -strides[axis])))


@lru_cache(maxsize=256)
def _mark(axes: tuple[int, ...], shape: tuple[int, ...] | None = None) -> int:
    digest = blake2b(repr((axes, shape)).encode(), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "little") >> 2)
