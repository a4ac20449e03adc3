"""Several arrays that are reduced as one: packed into it, and taken out of it again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankwise.basics.arrays import Array

__all__ = ["packed", "shapes_mark", "unpack"]

_MASK = (1 << 64) - 1


def packed(arrays: Sequence[Array]) -> Array:
    """Return all elements of C-contiguous arrays of one dtype, one array behind the other."""
    flat = np.empty(sum(array.size for array in arrays), arrays[0].dtype)
    np.concatenate([array.reshape(-1) for array in arrays], out=flat)
    return flat


def unpack(flat: Array, arrays: Sequence[Array]) -> None:
    """Put elements back to where they come from."""
    begin = 0
    for array in arrays:
        array.reshape(-1)[...] = flat[begin : begin + array.size]
        begin += array.size


def shapes_mark(arrays: Sequence[Array]) -> int:
    """Return a number below zero that stands for the shapes of arrays: Fowler, Noll and Vo's hash, by words.

    Compiled parts make the same of them.
    """
    mark = 0xCBF29CE484222325
    for array in arrays:
        for number in (array.ndim, *array.shape):
            mark = ((mark ^ number) * 0x100000001B3) & _MASK
            mark ^= mark >> 29  # else the upper bits would never reach the lower ones
    return -1 - (mark >> 1)
