"""Exchanges of parts whose shapes the ranks tell each other, and the transpose made of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rankwise as dist
from rankwise_arrays.blocks import cut, shares
from rankwise_arrays.kinds import Array, Group, concatenated, empty, in_order, is_member, taken
from rankwise_arrays.shapes import exchange_shapes

__all__ = ["exchanged", "transpose"]


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
    columns = concatenated(exchanged(parts, group, timeout), 0)
    return given.give_back(in_order(columns.swapaxes(0, 1)))


def exchanged(parts: Sequence[Array], group: Group, timeout: Any) -> list[Array]:
    """Send each rank its part, and return what comes from each."""
    shapes = exchange_shapes(parts, group, timeout)
    come = [empty(parts[0], shape) for shape in shapes]
    dist.all_to_all(come, list(parts), group, timeout=timeout)
    return come
