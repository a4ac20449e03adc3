"""Calls that return objects instead of filling lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import rankwise as dist
from rankwise_arrays.kinds import Group, is_member


def broadcast_object(value: Any, src: int = 0, group: Group = None) -> Any:
    """Return the source's object.

    Args:
        value: The object on rank `src`; what the others give does not matter.
        src: The source, as a global rank.
        group: The group; None is the default group.

    Returns:
        It, or on the other ranks one that equals it.

    Examples:
        >>> functional.broadcast_object({"seed": 7} if rank == 0 else None)
        {'seed': 7}
    """
    if not is_member(group):
        return None
    held = [value]
    dist.broadcast_object_list(held, src, group)
    return held[0]


def reduce_objects(value: Any, function: Callable[[Any, Any], Any], group: Group = None) -> Any:
    """Return to each rank the reduction of all ranks' objects by a function of two, in rank order.

    Args:
        value: This rank's object.
        function: Makes one of two; it is called on each rank, with the same objects.
        group: The group; None is the default group.

    Returns:
        The result.

    Examples:
        >>> functional.reduce_objects({rank}, set.union)
        {0, 1}
    """
    if not is_member(group):
        return None
    held: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(held, value, group)
    return reduce(function, held)


def all_to_all_objects(values: Sequence[Any], group: Group = None) -> list[Any] | None:
    """Send each rank an object, and return the object from each.

    Args:
        values: One object for each rank of the group.
        group: The group; None is the default group.

    Returns:
        The objects, in the order of ranks.

    Raises:
        ValueError: There is not one object for each rank.

    Examples:
        >>> functional.all_to_all_objects([f"from {rank} to {to}" for to in range(2)])
        ['from 0 to 0', 'from 1 to 0']
    """
    if not is_member(group):
        return None
    size, me = dist.get_world_size(group), dist.get_rank(group)
    if len(values) != size:
        raise ValueError(f"all_to_all_objects: {len(values)} objects for a group of {size}")
    come: list[Any] = [None] * size
    for root in range(size):  # each object travels once, and none waits for another's size
        dist.gather_object(values[root], come if root == me else None, group=group, group_dst=root)
    return come
