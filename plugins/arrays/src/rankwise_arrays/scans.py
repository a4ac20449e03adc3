"""Scans: what a rank gets of a reduction ends with its own contribution, or with that of the rank before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import rankwise as dist
from rankwise import ReduceOp
from rankwise.backends import kind_of, to_host
from rankwise_arrays.blocks import shares
from rankwise_arrays.fences import fence
from rankwise_arrays.kinds import Array, Group, concatenated, copied, empty, placed_like
from rankwise_arrays.messages import tag_for
from rankwise_arrays.together import agree
from rankwise_arrays.windows import HALF_NBYTES, Window, window_of

#: How much of an array is scanned at a time.
_AT_ONCE_NBYTES = 1 << 20
#: From how many bytes on a window is worth making, which takes some milliseconds once.
_LARGE_NBYTES = 64 << 10
_kept = threading.local()

#: What makes one array of two of the same shape, the lower rank's first.
Function = Callable[[Array, Array], Any]
Op = ReduceOp | Function


class _Custom:
    """A function of whole arrays, of any dtype, which keep their shape."""

    def __init__(self, call: str, function: Function, array: Array) -> None:
        if array.dtype.hasobject:
            raise TypeError(f"{call}: arrays of dtype {array.dtype} do not travel")
        self._call, self._function = call, function

    def combine(self, first: Array, second: Array) -> Array:
        """Return what two make, where the second was."""
        made = np.asarray(self._function(first, second))
        if made.shape != second.shape:
            raise ValueError(
                f"{self._call}: the function makes an array of shape {made.shape} of two of {second.shape}"
            )
        second[...] = made
        return second


def reduced_by(call: str, array: Array, function: Function, group: Group, timeout: Any) -> Array:
    """Return what a function makes of all ranks' arrays: the last rank has it by a scan, and tells the others."""
    out = scanned(call, array, function, group, timeout, exclusive=False)
    dist.broadcast(_bytes(out), None, group, group_src=dist.get_world_size(group) - 1, timeout=timeout)
    return out


def scanned(call: str, array: Array, op: Op, group: Group, timeout: Any, exclusive: bool) -> Array:
    """Return the reduction of what the ranks up to this one give, or up to the one before."""
    if isinstance(op, ReduceOp) and op.name == "AVG":
        raise ValueError(f"{call}: AVG is of all ranks, and no scan; scan with SUM, and divide")
    kind = kind_of(array)
    if kind is not None and not kind.computes:
        return placed_like(array, scanned(call, to_host(array), op, group, timeout, exclusive))
    if isinstance(op, ReduceOp):
        found = _by_parts(array, op, group, timeout, exclusive)
    else:
        found = _by_rounds(_Custom(call, op, array), array, group, timeout, exclusive)
    return copied(array) if exclusive and dist.get_rank(group) == 0 else found


def _by_parts(array: Array, op: ReduceOp, group: Group, timeout: Any, exclusive: bool) -> Array:
    """Reduce each element by itself: a rank does a part for all ranks, so that as much moves as in `all_reduce`."""
    large = array.nbytes >= _LARGE_NBYTES and kind_of(array) is None and not array.dtype.hasobject
    if large and (window := window_of(group)) is not None:
        return _given_shape(array, _by_window(array, op, window, group, timeout, exclusive), op)
    mine, size = op.accumulator(array), dist.get_world_size(group)
    most = max(1, _AT_ONCE_NBYTES // mine.itemsize // size) * size
    for begin in range(0, max(1, mine.size), most):
        piece = mine[begin : begin + most]
        counts = [len(part) for part in shares(piece.size, size)]
        own = counts[dist.get_rank(group)]
        back, there = (None, None) if counts[0] == counts[-1] else ([own] * size, counts)
        of_all = _room(piece, own * size)
        dist.all_to_all_single(of_all, piece, back, there, group, timeout=timeout)
        rows = of_all.reshape(size, own)
        for before, upto in pairwise(rows):
            op.merge(before, upto, upto)
        if exclusive:
            of_all = concatenated([rows[:1], rows[:-1]], 0).reshape(-1)
        dist.all_to_all_single(piece, of_all, there, back, group, timeout=timeout)
    return _given_shape(array, mine, op)


def _given_shape(array: Array, reduced: Array, op: ReduceOp) -> Array:
    """Return what has been reduced in the shape and dtype of what was given."""
    if reduced.dtype == array.dtype:
        return reduced.reshape(array.shape)
    out = empty(array, array.shape)  # of narrow floats, which are reduced in a wider dtype
    op.finish(reduced, out, 1)
    return out


def _by_window(
    array: Array, op: ReduceOp, window: Window, group: Group, timeout: Any, exclusive: bool
) -> np.ndarray[Any, Any]:
    """Reduce each rank's part of a piece where the ranks have written it, in place, and read one row of the outcome."""
    mine = array.reshape(-1) if op.is_plain_on(array.dtype) else op.accumulator(array)
    me, size = dist.get_rank(group), dist.get_world_size(group)
    call, said = "exscan" if exclusive else "scan", f"{op.name} of {array.dtype!r}{list(array.shape)}"
    out = np.empty(mine.size, mine.dtype)
    most = HALF_NBYTES // mine.itemsize
    for begin in range(0, mine.size, most):
        piece = mine[begin : begin + most]
        rows = [half[: piece.nbytes].view(mine.dtype) for half in window.halves[window.turn()]]
        rows[me][...] = piece
        agree(call, said, group, timeout)
        part = shares(piece.size, size)[me]
        parts = [row[part.start : part.stop] for row in rows]
        for before, upto in pairwise(parts):
            op.merge(before, upto, upto)
        fence(group, timeout=timeout)
        out[begin : begin + most] = rows[me - 1 if exclusive else me]
        if not exclusive:
            window.stay()
    return out


def _room(like: Array, count: int) -> Array:
    """Return an array for what lasts for one piece: this thread's own, as new memory takes longer than its use."""
    if kind_of(like) is not None or count * like.itemsize > _AT_ONCE_NBYTES:
        return empty(like, (count,))
    if not hasattr(_kept, "memory"):
        _kept.memory = np.empty(_AT_ONCE_NBYTES, np.uint8)
    memory: Array = _kept.memory[: count * like.itemsize].view(like.dtype)
    return memory


def _by_rounds(how: _Custom, array: Array, group: Group, timeout: Any, exclusive: bool) -> Array:
    """Make whole arrays of whole arrays, in as many rounds as the number of ranks has binary digits.

    In each, a rank hands on what it has of those before it.
    """
    me, size, tag = dist.get_rank(group), dist.get_world_size(group), tag_for(group)
    upto, before, distance = copied(array), None, 1
    while distance < size:
        going = dist.isend(_bytes(upto), None, group, tag, me + distance) if me + distance < size else None
        if me >= distance:
            come = empty(upto, upto.shape)
            dist.recv(_bytes(come), None, group, tag, me - distance, timeout=timeout)
        if going is not None:
            going.wait(timeout)
        if me >= distance:
            upto = how.combine(come, upto)
            before = come if before is None else how.combine(come, before)
        distance *= 2
    return before if exclusive else upto


def _bytes(array: Array) -> Array:
    """Return an array as it travels: one of a structured dtype as bytes."""
    return array if array.dtype.names is None else array.reshape(-1).view(np.uint8)
