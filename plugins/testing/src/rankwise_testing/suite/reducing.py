"""Reductions of arrays that a test has made itself, by each of the operations that reduce."""

from __future__ import annotations

from typing import Any

import numpy as np

import rankwise as dist
from rankwise import ReduceOp
from rankwise.backends import to_host
from rankwise_testing.suite.arrays import on_device


def reduced(op: str, how: ReduceOp, mine: Any) -> Any:
    """Reduce a host array by an operation, and return what this rank got of it, or None."""
    array, rank, size = on_device(mine), dist.get_rank(), dist.get_world_size()
    if op == "all_reduce":
        dist.all_reduce(array, how)
    elif op == "reduce":
        dist.reduce(array, size - 1, how)
        return to_host(array) if rank == size - 1 else None
    else:
        out = on_device(np.zeros_like(mine))
        dist.reduce_scatter(out, [array] * size, how)
        array = out
    return to_host(array)


def compare(op: str, reduce: str, got: Any, want: Any) -> None:
    """Raise unless the values are equal, NaN where NaN is wanted."""
    if got is None:
        return
    right = (got == want) | ((got != got) & (want != want))
    if not right.all():
        first = int(np.flatnonzero(~right)[0])
        raise AssertionError(
            f"{op}({reduce}) of {got.dtype} with {got.size} elements: element {first} is {got[first]!r} "
            f"and should be {want[first]!r}"
        )
