"""What reductions must give: NumPy on the data of all ranks, chosen so that every result is exact in every dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankwise.kits import REDUCE_OP_TABLE, ReduceOp
from rankwise_testing.suite.arrays import dtype_named, sample

_TIMES = ("datetime64", "timedelta64")


def reduce_op(name: str, rank: int) -> ReduceOp:
    """Return the reduce op that a rank calls with."""
    if name == "PREMUL_SUM":
        return ReduceOp.PREMUL_SUM(factor(rank))
    return ReduceOp(name)


def factor(rank: int) -> int:
    """Return the factor of a rank's PREMUL_SUM."""
    return 1 + rank % 2


def contribution(name: str, op: str, count: int, rank: int, size: int) -> Any:
    """Return a rank's host array for a reduction.

    Sums and products of up to four ranks stay below nine, which even the 8-bit floats represent exactly.
    """
    if name in ("bytes", "str", "structured", "void"):
        return sample(name, count, rank)  # to be refused
    pattern = (np.arange(count) + rank) % 3
    if op in ("BAND", "BOR", "BXOR"):
        numbers = (np.arange(count) * 5 + rank * 11) % 64
    elif op == "PRODUCT":
        numbers = np.where(rank < 3, 1 + pattern % 2, 1)
    elif op == "AVG":
        numbers = np.where(rank < 2, pattern % 2 * size, 0)
    elif op == "PREMUL_SUM":
        numbers = pattern % 2
    elif op == "SUM":
        numbers = pattern
    else:
        numbers = (np.arange(count) * 3 + rank * 5) % 7
    if name in _TIMES:
        return numbers.astype(np.int64).view(dtype_named(name))
    array = numbers.astype(dtype_named(name))
    return array + array[::-1] * array.dtype.type(1j) if array.dtype.kind == "c" else array


def reduced(name: str, op: str, count: int, size: int) -> Any:
    """Return what the contributions of all ranks reduce to, computed in the widest type that is exact."""
    ranks = range(size)
    arrays = [contribution(name, op, count, rank, size) for rank in ranks]
    dtype = dtype_named(name)
    if name not in _TIMES and name != "bool" and dtype.itemsize < 4 and "float" in name:
        arrays = [array.astype(np.float32) for array in arrays]
    if op == "PREMUL_SUM":
        arrays = [array * array.dtype.type(factor(rank)) for rank, array in zip(ranks, arrays, strict=True)]
    total = arrays[0].copy()
    for array in arrays[1:]:
        REDUCE_OP_TABLE[op].ufunc(total, array, out=total)
    return (total / total.dtype.type(size) if op == "AVG" else total).astype(dtype)
