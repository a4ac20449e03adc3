"""Arrays as programs lay them out: within others, at odd addresses, in several dimensions, read-only, with gaps, and in
memory that is filled with garbage once the program has dropped the array and nobody else holds it."""

from __future__ import annotations

import weakref
from random import Random
from typing import Any

import numpy as np

from rankwise_testing.suite.layouts import unlike

_GUARD = 64
_GARBAGE = 0xDB


class Room:
    """An array that is written to, in the midst of bytes that must stay as they are."""

    def __init__(self, dtype: np.dtype[Any], count: int, roll: Random) -> None:
        odd = roll.choice([0, 0, 0, dtype.itemsize, 1])
        self._raw = np.full(2 * _GUARD + odd + count * dtype.itemsize, 0xA5, np.uint8)
        self._begin = _GUARD + odd
        inner = self._raw[self._begin : self._begin + count * dtype.itemsize]
        inner[:] = 0
        self.array = inner.view(dtype)

    def shaped(self, form: int) -> Any:
        """Return the array, perhaps in two dimensions, or in none."""
        return _shaped(self.array, form)

    def check(self, want: Any, what: str) -> None:
        """Raise unless the content is right, and nothing beside it was written to."""
        problem = unlike(self.array, want)
        assert not problem, f"{what}: {problem}"
        end = self._begin + self.array.nbytes
        beside = np.concatenate([self._raw[: self._begin], self._raw[end:]])
        assert (beside == 0xA5).all(), f"{what}: written beside the array"


def lay_out(values: Any, form: int, roll: Random) -> Any:
    """Return values that are only read, in some layout; the form decides their shape, which ranks compare."""
    kind = roll.choice(["as it is", "as it is", "perishable", "perishable", "own", "odd", "gaps"])
    if kind == "as it is":
        return _shaped(values, form)  # read-only, within a large array
    if kind == "perishable":
        return _shaped(_perishable(values), form)
    if kind == "odd":
        raw = np.zeros(values.nbytes + 1, np.uint8)
        raw[1:].view(values.dtype)[:] = values
        return _shaped(raw[1:].view(values.dtype), form)
    if kind == "gaps":
        wide = np.zeros((values.size, 2), values.dtype)
        wide[:, 0] = values
        return _shaped(wide[:, 0], form)
    return _shaped(values.copy(), form)


class _Memory:
    """Memory for an array, as NumPy is told of it; it is gone with the last array that lies there."""

    def __init__(self, raw: Any) -> None:
        self.__array_interface__ = raw.__array_interface__


def _perishable(values: Any) -> Any:
    """Return a copy whose memory turns to garbage with the last reference to it, whatever the allocator does."""
    raw = np.frombuffer(values.tobytes(), np.uint8).copy()
    memory = _Memory(raw)
    weakref.finalize(memory, raw.fill, _GARBAGE)
    return np.asarray(memory).view(values.dtype)


def _shaped(array: Any, form: int) -> Any:
    if array.size and array.size % 2 == 0 and form == 1:
        return array.reshape(2, -1)
    return array.reshape(()) if array.size == 1 and form == 2 else array
