"""How a range of indices, or an axis of an array, is divided among ranks: in blocks, whose sizes differ by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import rankwise as dist
from rankwise_arrays.kinds import Array, Group, in_order


def share(n: int, group: Group = None, *, rank: int | None = None) -> range:
    """Return a rank's part of `range(n)`, which is divided about equally among all ranks.

    If the division leaves a remainder, the first ranks have one more.

    Args:
        n: How many indices there are.
        group: The group that shares them; None is the default group.
        rank: A rank in the group; None is this one.

    Returns:
        The part; nothing on a rank that is not in the group.

    Raises:
        ValueError: `n` is negative, or there is no such rank.

    Examples:
        >>> [dist.share(5, rank=rank) for rank in range(dist.get_world_size())]
        [range(0, 3), range(3, 5)]
        >>> rows = dist.share(4)
        >>> np.arange(8).reshape(4, 2)[rows.start : rows.stop].tolist()
        [[0, 1], [2, 3]]
    """
    if n < 0:
        raise ValueError(f"share: {n} indices cannot be shared")
    size = dist.get_world_size(group)
    if size < 0:
        return range(0)
    me = dist.get_rank(group) if rank is None else rank
    if not 0 <= me < size:
        raise ValueError(f"share: there is no rank {me} in a group of {size}")
    return shares(n, size)[me]


def shares(n: int, size: int) -> list[range]:
    """Return the parts of all ranks."""
    each, more = divmod(n, size)
    ends = [0]
    for rank in range(size):
        ends.append(ends[-1] + each + (rank < more))
    return [range(begin, end) for begin, end in pairwise(ends)]


def axis_of(call: str, ndim: int, axis: int) -> int:
    """Return an axis counted from the first.

    Raises:
        ValueError: There is none such.
    """
    if not -ndim <= axis < ndim:
        raise ValueError(f"{call}: axis {axis} is none of an array of {ndim} dimensions")
    return axis % ndim


def cut(array: Array, axis: int, parts: Sequence[range]) -> list[Array]:
    """Return the parts of an array along an axis, each in the order of rows."""
    before = [slice(None)] * axis
    places = [(*before, slice(part.start, part.stop)) for part in parts]
    return [in_order(array[place]) for place in places]
