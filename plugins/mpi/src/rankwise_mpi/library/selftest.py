"""Whether the MPI library reduces as NumPy does, found out by asking it.

The libraries have kernels of their own for each op and dtype, some of them in vector code whose result depends on where
in an array an element lies: Open MPI's saturates small integers where the rest wraps. `MPI_Reduce_local` runs the
same kernels as the collectives, without other ranks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI

#: Below, at and above the lengths of vectors; the last has a vector loop, its unrolled form and an odd rest.
_LENGTHS = (1, 3, 8, 15, 17, 33, 64, 129, 517)
#: Spans of these lengths, each with an element behind it that the library has no business with.
_SPANS = tuple(slice(sum(_LENGTHS[:i]) + i, sum(_LENGTHS[: i + 1]) + i) for i in range(len(_LENGTHS)))
_TOTAL = sum(_LENGTHS) + len(_LENGTHS)


def reduces_as(ufunc: np.ufunc, op: MPI.Op, datatype: MPI.Datatype, dtype: np.dtype[Any]) -> bool:
    """Tell whether `op` gives what `ufunc` does, for all lengths and whatever the values.

    Args:
        ufunc: What NumPy calls the reduction.
        op: What MPI calls it.
        datatype: The MPI type of an element.
        dtype: The NumPy type of an element.
    """
    left, right = _operands(dtype)
    with np.errstate(all="ignore"):
        wanted = ufunc(left, right)
    got = right.copy()
    for span, length in zip(_SPANS, _LENGTHS, strict=True):
        wanted[span.stop] = right[span.stop]
        op.Reduce_local((left[span], length, datatype), (got[span], length, datatype))
    return _same(got, wanted)


@lru_cache(maxsize=1)
def _operands(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return two arrays in which all kinds of values meet all others."""
    values = _values(dtype)
    indices = np.arange(_TOTAL)
    # Steps without a common divisor with the number of values: each pair comes, at ever other places.
    return values[indices % values.size], values[indices // values.size * 7 % values.size]


def _values(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return np.array([False, True, True], dtype)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        bits = (np.arange(1, 15, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(dtype)  # all of them matter
        return np.concatenate([np.array([ends.min, ends.min + 1, ends.max, ends.max - 1, 0, 1, 2], dtype), bits])
    real = np.dtype(dtype.char.lower()) if dtype.kind == "c" else dtype
    finfo = np.finfo(real)
    special = [np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0, -1.5, finfo.max, finfo.tiny, finfo.tiny / 4, 1 + finfo.eps]
    floats = np.array([*special, -3.25e-3, 12345.678], real)
    if dtype.kind != "c":
        return floats
    both = np.empty(floats.size, dtype)
    both.real, both.imag = floats, np.roll(floats, 4)
    return both


def _same(got: Any, wanted: Any) -> bool:
    """Tell whether two arrays are the same, signs of zeros included; one NaN is as good as another."""
    if got.dtype.kind == "c":
        return _same(got.real, wanted.real) and _same(got.imag, wanted.imag)
    if got.dtype.kind != "f":
        return bool(got.tobytes() == wanted.tobytes())  # a bool that is neither 0 nor 1 would compare equal
    equal = (got == wanted) & (np.signbit(got) == np.signbit(wanted))
    return bool((equal | (np.isnan(got) & np.isnan(wanted))).all())
