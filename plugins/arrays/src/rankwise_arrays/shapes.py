"""What ranks tell each other of the shapes of their arrays, and how parts of several shapes become one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rankwise as dist
from rankwise_arrays.blocks import along
from rankwise_arrays.kinds import Array, Group, empty

__all__ = ["exchange_shapes", "gather_shapes", "joined"]

Shape = tuple[int, ...]
#: NumPy's arrays have no more.
_MOST_DIMENSIONS = 64


def gather_shapes(call: str, array: Array, axis: int, group: Group, timeout: Any) -> list[Shape]:
    """Return the shapes of all ranks' arrays, which may differ in one axis.

    Raises:
        ValueError: They differ in another; the same on all ranks.
    """
    mine = empty(array, (array.ndim,), "int64")
    for place, length in enumerate(array.shape):
        mine[place] = length
    told = empty(array, (dist.get_world_size(group), array.ndim), "int64")
    dist.all_gather_into_tensor(told, mine, group, timeout=timeout)
    shapes = [tuple(shape) for shape in told.tolist()]
    if len({shape[:axis] + shape[axis + 1 :] for shape in shapes}) > 1:
        listed = ", ".join(f"rank {rank} {shape}" for rank, shape in enumerate(shapes[:8]))
        raise ValueError(f"{call}: only axis {axis} may differ between ranks, but the shapes are: {listed}")
    return shapes


def exchange_shapes(parts: Sequence[Array], group: Group, timeout: Any) -> list[Shape]:
    """Tell each rank the shape of what it will get, and return those of what comes from each."""
    rows = 1 + max(part.ndim for part in parts)
    if rows - 1 > _MOST_DIMENSIONS:
        raise ValueError(f"all_to_all: an array of {rows - 1} dimensions")
    mine = empty(parts[0], (len(parts), 1 + _MOST_DIMENSIONS), "int64")
    mine[...] = 0
    for row, part in zip(mine, parts, strict=True):
        row[0] = part.ndim
        for place, length in enumerate(part.shape, 1):
            row[place] = length
    come = empty(mine, mine.shape, "int64")
    dist.all_to_all_single(come, mine, group=group, timeout=timeout)
    return [tuple(row[1 : 1 + row[0]]) for row in come.tolist()]


def joined(like: Array, shapes: Sequence[Shape], axis: int) -> tuple[Callable[[], Array], list[Array]]:
    """Return what gives the whole once its parts are filled, and the parts."""
    length = sum(shape[axis] for shape in shapes)
    whole = empty(like, (*shapes[0][:axis], length, *shapes[0][axis + 1 :]))
    views, begin = [], 0
    for shape in shapes:
        views.append(whole[along(axis, begin, begin + shape[axis])])
        begin += shape[axis]
    if axis == 0:
        return lambda: whole, views
    parts = [empty(like, shape) for shape in shapes]

    def put_together() -> Array:
        for view, part in zip(views, parts, strict=True):
            view[...] = part
        return whole

    return put_together, parts
