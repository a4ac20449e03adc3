"""Questions about groups."""

from __future__ import annotations

from rankwise.basics.arguments import require
from rankwise.basics.tracebacks import shortened
from rankwise.groups.process_group import NON_GROUP_MEMBER, GroupLike, ProcessGroup
from rankwise.groups.world import current, membership


def get_rank(group: GroupLike = None) -> int:
    """Return this process's rank in a group.

    Args:
        group: The group; None is the default group.

    Returns:
        The rank, or -1 if this process is not a member.

    Raises:
        ValueError: There is no default group.

    Examples:
        >>> dist.get_rank()
        0
    """
    with shortened:
        return -1 if group == NON_GROUP_MEMBER else membership(group, "get_rank").rank()


def get_world_size(group: GroupLike = None) -> int:
    """Return the number of ranks of a group.

    Args:
        group: The group; None is the default group.

    Returns:
        The number, or -1 if this process is not a member.

    Raises:
        ValueError: There is no default group.

    Examples:
        >>> dist.get_world_size()
        2
    """
    with shortened:
        return -1 if group == NON_GROUP_MEMBER else membership(group, "get_world_size").size()


def get_backend(group: ProcessGroup | None = None) -> str:
    """Return the name of a group's backend.

    Args:
        group: The group; None is the default group.

    Returns:
        The name, or the composite ("cpu:gloo,cuda:nccl") if there are several.

    Raises:
        ValueError: This process is not a member, or there is no default group.

    Examples:
        >>> dist.init_process_group("gloo")
        >>> dist.get_backend()
        'gloo'
        >>> dist.destroy_process_group()
    """
    with shortened:
        return membership(group, "get_backend").backend


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """Return which backend serves which kind of device.

    Args:
        group: The group; None is the default group.

    Returns:
        A text such as "cpu:gloo,cuda:nccl".

    Raises:
        ValueError: This process is not a member, or there is no default group.

    Examples:
        >>> dist.init_process_group("cpu:gloo")
        >>> dist.get_backend_config()
        'cpu:gloo'
        >>> dist.destroy_process_group()
    """
    with shortened:
        return repr(membership(group, "get_backend_config").config)


def get_group_rank(group: ProcessGroup | None, global_rank: int) -> int:
    """Return the rank in `group` of a global rank.

    Args:
        group: The group; None is the default group.
        global_rank: The rank in the world.

    Returns:
        The rank in the group.

    Raises:
        ValueError: It is not in the group, or this process is not.

    Examples:
        >>> turned = dist.new_group([1, 0], sort_ranks=False)
        >>> dist.get_group_rank(turned, 1)
        0
    """
    with shortened:
        found = membership(group, "get_group_rank")
        require(global_rank=global_rank)
        if global_rank not in found.rank_of:
            raise ValueError(f"global_rank={global_rank} is not in group {found.group_desc!r}")
        return found.rank_of[global_rank]


def get_global_rank(group: ProcessGroup | None, group_rank: int) -> int:
    """Return the global rank of a rank in `group`.

    Args:
        group: The group; None is the default group.
        group_rank: The rank in the group.

    Returns:
        The rank in the world.

    Raises:
        ValueError: The group has no such rank, or this process is not a member.

    Examples:
        >>> turned = dist.new_group([1, 0], sort_ranks=False)
        >>> dist.get_global_rank(turned, 0)
        1
    """
    with shortened:
        found = membership(group, "get_global_rank")
        require(group_rank=group_rank)
        if not 0 <= group_rank < found.size():
            raise ValueError(f"group_rank={group_rank} is no rank of group {found.group_desc!r} of {found.size()}")
        return found.ranks[group_rank]


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """Return the global ranks of a group, in the order of their ranks in the group.

    Args:
        group: The group; None is the default group.

    Returns:
        The ranks.

    Raises:
        ValueError: This process is not a member, or there is no default group.

    Examples:
        >>> dist.get_process_group_ranks()
        [0, 1]
    """
    with shortened:
        return list(membership(group, "get_process_group_ranks").ranks)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Return this process's rank among those on its host, as the launcher has set it.

    Args:
        fallback_rank: What to return if the launcher has not.

    Returns:
        The rank.

    Raises:
        RuntimeError: The launcher has not set it, and there is no `fallback_rank`.

    Examples:
        >>> dist.get_node_local_rank(fallback_rank=0)
        0
    """
    from rankwise.basics.entry_points import part  # which few programs need

    with shortened:
        told: int | None = part("local_rank", "rankwise-network")()
        if told is not None:
            return told
        if fallback_rank is None:
            raise RuntimeError("get_node_local_rank: LOCAL_RANK is not set; use `rankwise run`, or give fallback_rank")
        require(fallback_rank=fallback_rank)
        return int(fallback_rank)


def get_pg_count() -> int:
    """Return how many groups this process has now.

    Returns:
        The number, the default group and those outside of its world included.

    Examples:
        >>> dist.get_pg_count()
        1
        >>> pair = dist.new_group()
        >>> dist.get_pg_count()
        2
    """
    return len([group for world in current().worlds() if not world.forked for group in world.groups])
