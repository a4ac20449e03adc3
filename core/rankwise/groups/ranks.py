"""The one translation between global ranks, which users give, and group ranks, which backends get."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from rankwise.basics.arguments import is_integer, shown
from rankwise.groups.process_group import ProcessGroup


def group_rank(group: ProcessGroup, name: str, global_rank: int | None, in_group: int | None) -> int:
    """Return the group rank of a peer given by exactly one of its two ranks; messages call it "src", "dst" or "peer".

    Raises:
        ValueError: Both or neither are given, or the rank is not in the group.
    """
    # Most calls give just this, and the smallest take no longer than the checks below.
    if in_group is None and type(global_rank) is int:
        found = group.rank_of.get(global_rank)
        if found is not None:
            return found
    if (global_rank is None) == (in_group is None):
        raise ValueError(f"give exactly one of {name} (a global rank) and group_{name} (a rank in the group)")
    if in_group is not None:
        index = _integer(in_group, f"group_{name}")
        if not 0 <= index < len(group.ranks):
            raise ValueError(f"group_{name}={index} is not a rank of a group of {len(group.ranks)}")
        return index
    rank = group.rank_of.get(_integer(global_rank, name))
    if rank is None:
        raise ValueError(f"{name}={global_rank} is not in group {group.group_desc!r} of ranks {list(group.ranks)}")
    return rank


def members(ranks: Iterable[Any], known: Collection[int], name: str = "ranks") -> tuple[int, ...]:
    """Return the ranks of a group to be made, which are known to be integers, checked, in the order given.

    Raises:
        ValueError: There is none, one is given twice, or one is not among the known ones.
    """
    listed = tuple(rank.__index__() for rank in ranks)
    if not listed:
        raise ValueError(f"{name} is empty, but a group needs at least one rank")
    if len(set(listed)) != len(listed):
        raise ValueError(f"{name} {list(listed)} holds a rank twice")
    outside = [rank for rank in listed if rank not in known]
    if outside:
        raise ValueError(f"{name} {outside} are not in a world of {len(known)}")
    return listed


def _integer(rank: object, name: str) -> int:
    if not is_integer(rank):
        raise TypeError(f"{name} must be an integer rank, not {shown(rank)}")
    return rank.__index__()  # type: ignore[attr-defined,no-any-return]
