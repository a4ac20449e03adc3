"""Kinds of calls as C tells them apart: by the name, this rank's array, the reduce op or root, and some numbers.

The numbers are the shape of the array, of a `reduce` with the root before it; or the sizes of the parts, of an
`all_to_all` first of those that go, of a `gather` or `scatter` at the root behind that of the array. Of a call that is
described they are the root, how many arrays go and how many come, and their sizes behind that of the array; where none
go or come, the array's shape. Behind a shape may stand numbers below zero: see `Call.together` and `Call.reordered`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankwise.backends import Array, Call, ReduceOp


def call_like(name: str, array: Array | None, option: Any, numbers: Sequence[int], rank: int) -> Call:
    """Return a call of the same kind, on arrays that take no memory; its fingerprint is that of arrays in C order."""
    if array is None:
        return Call(name)
    op, root = (option, -1) if isinstance(option, ReduceOp) else (None, option)
    shape, ins, outs, half = numbers, numbers[:0], numbers[:0], len(numbers) // 2
    if name == "reduce":
        root, *shape = numbers
    elif name in ("gather", "scatter") and root == rank:
        shape, ins, outs = numbers[:1], *((ins, numbers[1:]) if name == "gather" else (numbers[1:], outs))
    elif name in ("all_gather", "reduce_scatter"):
        root, shape = -1, numbers[rank : rank + 1]
        ins, outs = (ins, numbers) if name == "all_gather" else (numbers, outs)
    elif name == "all_to_all":
        root, shape, ins, outs = -1, numbers[rank : rank + 1], numbers[:half], numbers[half:]
    elif name not in ("all_reduce", "broadcast", "gather", "scatter"):
        root, gives, takes, *shape = numbers
        if gives or takes:
            shape, ins, outs = shape[:1], shape[1 : 1 + gives], shape[1 + gives :]

    def like(*lengths: int) -> Array:
        return np.broadcast_to(np.empty((), array.dtype), lengths)

    marks = tuple(number for number in shape if number < 0)
    given, taken = ([like(size) for size in sizes] or None for sizes in (ins, outs))
    return Call(name, like(*(number for number in shape if number >= 0)), op, root, given, taken, together=marks)
