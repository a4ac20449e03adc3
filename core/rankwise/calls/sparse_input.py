"""The check of a sparse array, which only `all_reduce` takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rankwise.basics.arguments import shown
from rankwise.basics.arrays import Array, Coordinates
from rankwise.basics.reduce_op import ReduceOp
from rankwise.calls.check import where
from rankwise.errors import UnsupportedOperationError
from rankwise.groups.process_group import ProcessGroup

__all__ = ["sparse_elements"]


def sparse_elements(group: ProcessGroup, op: str, name: str, value: Any, reduction: Any) -> tuple[Array, str]:
    """Return the elements of a sparse array that can be summed, and what of it must be the same on all ranks.

    One of scipy must have two dimensions, and a format that stores elements one by one.
    """
    named = where(group, op, name)
    if isinstance(reduction, ReduceOp) and reduction.name != "SUM":
        raise UnsupportedOperationError(
            f"{named} is a sparse array, which is reduced with SUM alone, not {shown(reduction)}"
        )
    if math.prod(value.shape) > np.iinfo(np.int64).max:
        raise ValueError(f"{named} is a sparse array of shape {value.shape}, which has more places than 64 bits count")
    if type(value) is Coordinates:
        return value.data, f" sparse in {value.sparse_dims} of {len(value.shape)} dimensions"
    if value.format not in ("csr", "csc", "coo") or value.ndim != 2:
        shape = f"of format {value.format!r} and {value.ndim} dimensions"
        raise ValueError(f"{named} is a sparse array {shape}; pass one from .tocsr(), .tocsc() or .tocoo(), of two")
    return value.data, " sparse"
