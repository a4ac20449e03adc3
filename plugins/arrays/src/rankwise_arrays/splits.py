"""Splitting a group by a color that each rank names."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import rankwise as dist
from rankwise_arrays.kinds import Group, is_member


def split(color: Hashable, key: Any = 0, group: Group = None) -> dist.ProcessGroup | None:
    """Split a group: ranks that name the same color form a new group, as with `MPI_Comm_split`.

    Args:
        color: A number or string that names the group that this rank joins; None for none.
        key: Ranks are numbered by it in their new group, and where it is the same as they were before.
        group: The group to split, all of whose ranks make the call; None is the default group.

    Returns:
        This rank's new group, or None.

    Examples:
        >>> mine = dist.split("even" if rank % 2 == 0 else "odd")
        >>> mine.size(), dist.get_process_group_ranks(mine)
        (1, [0])
    """
    if not is_member(group):
        return None
    told: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, (color, key), group)
    colors = dict.fromkeys(named for named, _ in told if named is not None)
    lists = [
        sorted((rank for rank, (at, _) in enumerate(told) if at == one), key=lambda r: told[r][1]) for one in colors
    ]
    return dist.split_group(group, lists) if lists else None
