"""Exchanges of parts whose shapes the ranks tell each other, and the transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.backends import kind_of
from rankwise_arrays.blocks import cut, shares
from rankwise_arrays.kinds import Array, Group, in_order, is_member, taken
from rankwise_arrays.shapes import exchange_shapes, gather_shapes, joined
from rankwise_arrays.together import agree
from rankwise_arrays.windows import HALF_NBYTES, Window, window_of

#: 64 bytes, which a processor reads at once, have 8 numbers of 8 bytes; more rows than some dozens leave the caches.
_ROWS = 32
#: From how many bytes of the whole on a window is worth making, which takes some milliseconds once.
_LARGE_NBYTES = 256 << 10


def transpose(x: Any, group: Group = None, *, timeout: Any = None) -> Any:
    """Return this rank's rows of the transpose of a matrix that is divided by rows, as `share` divides.

    Args:
        x: This rank's rows, which may be none; of more than two axes the first two are exchanged.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        Rows of the transpose.

    Raises:
        ValueError: `x` has fewer than two axes, or the ranks' rows have different lengths.

    Examples:
        >>> whole = np.arange(6).reshape(2, 3)
        >>> functional.transpose(whole[rank : rank + 1]).tolist()
        [[0, 3], [1, 4]]
    """
    given = taken("transpose", x)
    if given.array.ndim < 2:
        raise ValueError(f"transpose: an array of {given.array.ndim} dimensions")
    if not is_member(group):
        return None
    array = given.array
    shapes = gather_shapes("transpose", array, 0, group, timeout)
    window = window_of(group) if _suits_windows(array, shapes) else None
    if window is not None:
        return given.give_back(_by_window(array, window, shapes, group, timeout))
    parts = cut(array, 1, shares(array.shape[1], len(shapes)))
    like = parts[dist.get_rank(group)].shape[1:]
    columns, come = joined(array, [(rows, *like) for rows, *_ in shapes], 0)
    dist.all_to_all(come, parts, group, timeout=timeout)
    return given.give_back(_turned(columns()))


def exchanged(
    parts: Sequence[Array], axis: int | None, group: Group, timeout: Any
) -> tuple[Callable[[], Array], list[Array]]:
    """Send each rank its part; return what joins the parts that come, along an axis, and these parts."""
    whole, come = joined(parts[0], exchange_shapes(parts, group, timeout), axis)
    dist.all_to_all(come, list(parts), group, timeout=timeout)
    return whole, come


def _suits_windows(array: Array, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Tell whether rows of all ranks fit into a window, and are so many that making one is worth it."""
    if kind_of(array) is not None or array.dtype.hasobject:
        return False
    row_nbytes = int(array.itemsize * prod(array.shape[1:]))
    return row_nbytes <= HALF_NBYTES and row_nbytes * sum(shape[0] for shape in shapes) >= _LARGE_NBYTES


def _by_window(
    array: Array, window: Window, shapes: Sequence[tuple[int, ...]], group: Group, timeout: Any
) -> np.ndarray[Any, Any]:
    """Write some rows into this rank's half as they are, and read this rank's columns of all ranks' rows, turned.

    So each element is copied twice: once in the order in which it lies, and once across, while it is in the caches.
    """
    me, (_, width, *more) = dist.get_rank(group), array.shape
    mine = shares(width, len(shapes))[me]
    ends = [*accumulate((shape[0] for shape in shapes), initial=0)]
    out = np.empty((len(mine), ends[-1], *more), array.dtype)
    row_nbytes = array.itemsize * prod(array.shape[1:])
    most = HALF_NBYTES // row_nbytes
    for begin in range(0, max(shape[0] for shape in shapes), most):
        pieces = []
        for half, shape in zip(window.halves[window.turn()], shapes, strict=True):
            count = min(max(0, shape[0] - begin), most)
            pieces.append(half[: count * row_nbytes].view(array.dtype).reshape(count, width, *more))
        pieces[me][...] = array[begin : begin + most]
        agree("transpose", repr(array.dtype), group, timeout)
        for peer in [*range(me, len(shapes)), *range(me)]:  # not all ranks read the same memory first
            at = ends[peer] + begin
            columns = pieces[peer][:, mine.start : mine.stop]
            _turn(columns, out[:, at : at + len(columns)])
    return out


def _turned(array: Array) -> Array:
    """Return a copy with the first two axes exchanged: in the order of rows."""
    turned = array.swapaxes(0, 1)
    if kind_of(array) is not None:
        return in_order(turned)
    out = np.empty(turned.shape, turned.dtype)
    _turn(array, out)
    return out


def _turn(array: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    """Copy an array with the first two axes exchanged, some rows at a time, which the caches hold."""
    turned = array.swapaxes(0, 1)
    for begin in range(0, len(array), _ROWS):
        out[:, begin : begin + _ROWS] = turned[:, begin : begin + _ROWS]
