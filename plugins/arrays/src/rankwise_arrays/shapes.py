"""What ranks tell each other of the shapes of their arrays, and how parts of several shapes become one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import rankwise as dist
from rankwise.backends import to_host
from rankwise_arrays.kinds import Array, Group, concatenated, empty, numbers

Shape = tuple[int, ...]
#: NumPy's arrays have no more.
_MOST_DIMENSIONS = 64


def gather_shapes(call: str, array: Array, axis: int, group: Group, timeout: Any) -> list[Shape]:
    """Return the shapes of all ranks' arrays, which may differ in one axis.

    Raises:
        ValueError: They differ in another; the same on all ranks.
    """
    mine = numbers(array, array.shape)
    told = empty(array, (dist.get_world_size(group), array.ndim), "int64")
    dist.all_gather_into_tensor(told, mine, group, timeout=timeout)
    shapes = [tuple(shape) for shape in to_host(told).tolist()]
    if len({shape[:axis] + shape[axis + 1 :] for shape in shapes}) > 1:
        listed = ", ".join(f"rank {rank} {shape}" for rank, shape in enumerate(shapes[:8]))
        raise ValueError(f"{call}: only axis {axis} may differ between ranks, but the shapes are: {listed}")
    return shapes


def exchange_shapes(parts: Sequence[Array], group: Group, timeout: Any) -> list[Shape]:
    """Tell each rank the shape of what it will get, and return those of what comes from each."""
    rows = [[part.ndim, *part.shape] + [0] * (_MOST_DIMENSIONS - part.ndim) for part in parts]
    mine = numbers(parts[0], rows)
    come = empty(mine, mine.shape, "int64")
    dist.all_to_all_single(come, mine, group=group, timeout=timeout)
    return [tuple(row[1 : 1 + row[0]]) for row in to_host(come).tolist()]


def joined(like: Array, shapes: Sequence[Shape], axis: int | None) -> tuple[Callable[[], Array], list[Array]]:
    """Return what gives the whole once its parts are filled, or raises if they do not fit together, and the parts.

    Along the first axis they are parts of the whole from the beginning. They need no axis if nobody asks for the whole.
    """
    if axis != 0 or len({shape[1:] for shape in shapes}) > 1:
        parts = [empty(like, shape) for shape in shapes]
        return lambda: concatenated(parts, axis), parts
    whole = empty(like, (sum(shape[0] for shape in shapes), *shapes[0][1:]))
    ends = [*accumulate((shape[0] for shape in shapes), initial=0)]
    return lambda: whole, [whole[begin:end] for begin, end in pairwise(ends)]
