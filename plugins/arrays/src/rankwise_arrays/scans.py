"""Scans: what a rank gets of a reduction ends with its own contribution, or with that of the rank before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist
from rankwise import ReduceOp
from rankwise.backends import kind_of, to_host
from rankwise_arrays.kinds import Array, Group, copied, empty, placed_like
from rankwise_arrays.messages import tag_for

__all__ = ["Op", "reduced_by", "scanned"]

#: What makes one array of two of the same shape, the lower rank's first.
Function = Callable[[Array, Array], Any]
Op = ReduceOp | Function


class _Custom:
    """A function in the place of a reduce op: whole arrays of any dtype, which keep their shape."""

    def __init__(self, call: str, function: Function, array: Array) -> None:
        if array.dtype.hasobject:
            raise TypeError(f"{call}: arrays of dtype {array.dtype} do not travel")
        self._call, self._function = call, function

    def accumulator(self, array: Array) -> Array:
        """Return what to reduce into."""
        return copied(array)

    def combine(self, accumulator: Array, incoming: Array, left: bool) -> None:
        """Write what two make into the first; `incoming` is the left operand if so told."""
        pair = (incoming, accumulator) if left else (accumulator, incoming)
        made = np.asarray(self._function(*pair))
        if made.shape != accumulator.shape:
            raise ValueError(
                f"{self._call}: the function makes an array of shape {made.shape} of two of {incoming.shape}"
            )
        accumulator[...] = made

    def finish(self, accumulator: Array, out: Array, size: int) -> None:
        """Write the result."""
        out[...] = accumulator


def reduced_by(call: str, array: Array, function: Function, group: Group, timeout: Any) -> Array:
    """Return what a function makes of all ranks' arrays: the last rank has it by a scan, and tells the others."""
    out = scanned(call, array, function, group, timeout, exclusive=False)
    dist.broadcast(_bytes(out), None, group, group_src=dist.get_world_size(group) - 1, timeout=timeout)
    return out


def scanned(call: str, array: Array, op: Op, group: Group, timeout: Any, exclusive: bool) -> Array:
    """Return the reduction of what the ranks up to this one give, or up to the one before.

    In as many rounds as the number of ranks has binary digits, each rank hands on what it has of those before it.
    """
    if isinstance(op, ReduceOp) and op.name == "AVG":
        raise ValueError(f"{call}: AVG is of all ranks, and no scan; scan with SUM, and divide")
    kind = kind_of(array)
    if kind is not None and not kind.computes:
        return placed_like(array, scanned(call, to_host(array), op, group, timeout, exclusive))
    how = op if isinstance(op, ReduceOp) else _Custom(call, op, array)
    me, size, tag = dist.get_rank(group), dist.get_world_size(group), tag_for(group)
    upto = how.accumulator(array)
    before = None
    distance = 1
    while distance < size:
        going = dist.isend(_bytes(upto), None, group, tag, me + distance) if me + distance < size else None
        come = None
        if me >= distance:
            come = empty(upto, upto.shape)
            coming = dist.irecv(_bytes(come), None, group, tag, me - distance)
            if coming is not None:
                coming.wait(timeout)
        if going is not None:
            going.wait(timeout)
        if come is not None:
            how.combine(upto, come, left=True)
            before = come if before is None else _with(how, come, before)
        distance *= 2
    out = copied(array)
    found = before if exclusive else upto
    if found is not None:
        how.finish(found, out, size)
    return out


def _bytes(array: Array) -> Array:
    """Return an array as it travels: one of a structured dtype as bytes."""
    return array if array.dtype.names is None else array.reshape(-1).view(np.uint8)


def _with(how: ReduceOp | _Custom, first: Array, second: Array) -> Array:
    how.combine(second, first, left=True)
    return second
