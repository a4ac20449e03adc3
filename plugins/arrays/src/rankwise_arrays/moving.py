"""Arrays of one rank moved between its devices, whose queues know nothing of each other."""

from __future__ import annotations

import numpy as np

from rankwise.backends import Array, kind_of, to_device, to_host
from rankwise.binding import on_device_of, placed


def computable(array: Array) -> Array:
    """Return an array, or a copy on the host of one whose device does not compute."""
    kind = kind_of(array)
    return array if kind is None or kind.computes else to_host(array)


def near(array: Array, target: Array) -> Array:
    """Return `array` on the device of `target`, whose queues and those of `array`'s know nothing of each other."""
    kind = kind_of(target)
    if kind is not kind_of(array):
        return to_host(array) if kind is None else placed(to_host(array), kind, kind.index(target))
    if kind is None or kind.index(array) == kind.index(target):
        return array
    synchronize(array)
    with on_device_of(target):
        copied = kind.copy(array)
    synchronize(copied)
    return copied


def assign(out: Array, array: Array) -> Array:
    """Copy an array into another of as many elements, wherever the two lie, and return that."""
    kind = kind_of(out)
    if kind is not None and not kind.computes:
        with np.errstate(all="ignore"):  # what the narrower dtype makes of a value is the caller's wish
            to_device(out, to_host(array).astype(out.dtype))
        return out
    copied = near(array, out)
    with on_device_of(out), np.errstate(all="ignore"):
        out[...] = copied.reshape(out.shape)
    return out


def synchronize(array: Array) -> None:
    """Wait for what this thread has begun on the device of an array."""
    kind = kind_of(array)
    if kind is not None:
        with on_device_of(array):
            kind.synchronize()
