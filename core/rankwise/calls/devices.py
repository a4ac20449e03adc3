"""Arrays that lie on different devices: CuPy computes on the current one only, and each has streams of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from rankwise.basics.arrays import Array

__all__ = ["assign", "near", "on", "stacked", "synchronize"]


def on(array: Array) -> AbstractContextManager[Any]:
    """Make the device of `array` the current one: CuPy computes nowhere else."""
    return nullcontext() if type(array) is np.ndarray else array.device


def near(array: Array, target: Array) -> Array:
    """Return `array` on the device of `target`, whose streams and those of `array`'s know nothing of each other."""
    if type(array) is np.ndarray or array.device == target.device:
        return array
    synchronize(array)
    with on(target):
        copied = array.copy()
    synchronize(copied)
    return copied


def synchronize(array: Array) -> None:
    """Wait for what was begun on a GPU by this thread."""
    if type(array) is not np.ndarray:
        import cupy

        with on(array):
            cupy.cuda.get_current_stream().synchronize()


def assign(out: Array, array: Array) -> None:
    """Copy an array into another, wherever the two lie."""
    copied = near(array, out)
    with on(out):
        out[...] = copied.reshape(out.shape)


def stacked(arrays: list[Array]) -> Array:
    """Return the arrays one after the other, on the device of the first."""
    with on(arrays[0]):
        return np.concatenate([near(array.reshape(-1), arrays[0]) for array in arrays])
