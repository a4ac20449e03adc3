"""Arrays on several devices: CuPy computes on the current one only, and each has streams of its own.

Arrays of NumPy are in one place, where nothing here has anything to do but to copy.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

__all__ = ["assign", "near", "on_device_of", "synchronize"]


def on_device_of(array: Any) -> AbstractContextManager[Any]:
    """Make the device of an array the current one, on which alone CuPy computes, and makes arrays."""
    return nullcontext() if type(array) is np.ndarray else array.device


def near(array: Any, target: Any) -> Any:
    """Return `array` on the device of `target`, whose streams and those of `array`'s know nothing of each other."""
    if type(array) is np.ndarray or array.device == target.device:
        return array
    synchronize(array)
    with on_device_of(target):
        copied = array.copy()
    synchronize(copied)
    return copied


def assign(out: Any, array: Any) -> Any:
    """Copy an array into another of as many elements, wherever the two lie, and return that."""
    copied = near(array, out)
    with on_device_of(out), np.errstate(all="ignore"):  # what the narrower dtype makes of a value is the caller's wish
        out[...] = copied.reshape(out.shape)
    return out


def synchronize(array: Any) -> None:
    """Wait for what this thread has begun on the device of an array."""
    if type(array) is not np.ndarray:
        import cupy

        with on_device_of(array):
            cupy.cuda.get_current_stream().synchronize()
