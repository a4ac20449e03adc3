"""Scans: what a rank gets of a reduction ends with its own contribution, or with that of the rank before."""

from __future__ import annotations

from typing import Any

import rankwise as dist
from rankwise import ReduceOp
from rankwise.backends import kind_of, to_host
from rankwise_arrays.kinds import Array, Group, copied, empty, placed_like
from rankwise_arrays.messages import tag_for

__all__ = ["scanned"]


def scanned(call: str, array: Array, op: ReduceOp, group: Group, timeout: Any, exclusive: bool) -> Array:
    """Return the reduction of what the ranks up to this one give, or up to the one before.

    In as many rounds as the number of ranks has binary digits, each rank hands on what it has of those before it.
    """
    if op.name == "AVG":
        raise ValueError(f"{call}: AVG is of all ranks, and no scan; scan with SUM, and divide")
    kind = kind_of(array)
    if kind is not None and not kind.computes:
        return placed_like(array, scanned(call, to_host(array), op, group, timeout, exclusive))
    me, size, tag = dist.get_rank(group), dist.get_world_size(group), tag_for(group)
    upto = op.accumulator(array)
    before = None
    distance = 1
    while distance < size:
        going = dist.isend(upto, None, group, tag, me + distance) if me + distance < size else None
        come = None
        if me >= distance:
            come = empty(upto, upto.shape)
            coming = dist.irecv(come, None, group, tag, me - distance)
            if coming is not None:
                coming.wait(timeout)
        if going is not None:
            going.wait(timeout)
        if come is not None:
            op.combine(upto, come, left=True)
            before = come if before is None else _with(op, come, before)
        distance *= 2
    out = copied(array)
    found = before if exclusive else upto
    if found is not None:
        op.finish(found, out, size)
    return out


def _with(op: ReduceOp, first: Array, second: Array) -> Array:
    op.combine(second, first, left=True)
    return second
