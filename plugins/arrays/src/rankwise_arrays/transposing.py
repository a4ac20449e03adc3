"""Exchanges of parts whose shapes the ranks tell each other, and the transpose made of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.backends import kind_of
from rankwise_arrays.blocks import cut, shares
from rankwise_arrays.kinds import Array, Group, in_order, is_member, taken
from rankwise_arrays.shapes import exchange_shapes, joined

__all__ = ["exchanged", "transpose"]

#: 64 bytes, which a processor reads at once, have 8 numbers of 8 bytes; more rows than some dozens leave the caches.
_ROWS = 32


def transpose(x: Any, group: Group = None, *, timeout: Any = None) -> Any:
    """Return this rank's rows of the transpose of a matrix that is divided by rows, as `share` divides.

    Args:
        x: This rank's rows, which may be none; of more than two axes the first two are exchanged.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        Rows of the transpose.

    Raises:
        ValueError: `x` has fewer than two axes.

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
    parts = cut(given.array, 1, shares(given.array.shape[1], dist.get_world_size(group)))
    columns, _ = exchanged(parts, 0, group, timeout)
    return given.give_back(_turned(columns()))


def exchanged(
    parts: Sequence[Array], axis: int | None, group: Group, timeout: Any
) -> tuple[Callable[[], Array], list[Array]]:
    """Send each rank its part; return what joins the parts that come, along an axis, and these parts."""
    whole, come = joined(parts[0], exchange_shapes(parts, group, timeout), axis)
    dist.all_to_all(come, list(parts), group, timeout=timeout)
    return whole, come


def _turned(array: Array) -> Array:
    """Return a copy with the first two axes exchanged: by NumPy some rows at a time, which the caches hold."""
    turned = array.swapaxes(0, 1)
    if kind_of(array) is not None:
        return in_order(turned)
    out = np.empty(turned.shape, turned.dtype)
    for begin in range(0, len(array), _ROWS):
        out[:, begin : begin + _ROWS] = turned[:, begin : begin + _ROWS]
    return out
