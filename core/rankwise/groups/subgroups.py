"""Groups besides the default one: how they are made, split, shrunk and given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rankwise.backends.backend import BackendConfig
from rankwise.basics.arguments import require
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.interrupts import held
from rankwise.basics.tracebacks import shortened
from rankwise.errors import DistTimeoutError, ForkedProcessError, PeerDiedError
from rankwise.groups.lifecycle import DEFAULT_TIMEOUT_S, forget, not_made, usable
from rankwise.groups.making import come_together, make_group, stay_for
from rankwise.groups.process_group import NON_GROUP_MEMBER, Plan, ProcessGroup
from rankwise.groups.ranks import members
from rankwise.groups.refusals import MADE
from rankwise.groups.world import World, membership
from rankwise.store import PrefixStore

SHRINK_DEFAULT = 0
"""For `shrink_group`: leave the parent as it is while its survivors make the smaller group."""
SHRINK_ABORT = 1
"""For `shrink_group`: abort what is pending on the parent first."""


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: Timeout | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> ProcessGroup | int:
    """Make a group of some ranks of the world.

    All ranks of the world must call this, members or not, and make their groups in the same order; with
    `use_local_synchronization` only the members call.

    Args:
        ranks: Global ranks of the members; None for all.
        timeout: Default time-out of the group's operations, and of this call; 30 minutes.
        backend: A backend, which need not be the world's; None for the world's.
        pg_options: Passed on to the backend.
        use_local_synchronization: Only the members call.
        group_desc: A name for messages.
        device_id: The device that this rank uses.
        sort_ranks: Number the members by their global rank; if false, in the order given.

    Returns:
        The group, or `GroupMember.NON_GROUP_MEMBER` on a rank that is not in it.

    Raises:
        ValueError: A rank is given twice or is not in the world, or there is no world.
        RendezvousError: The members disagree about the group.

    Examples:
        >>> alone = dist.new_group([0])  # every rank calls, members or not
        >>> dist.get_world_size(alone)  # -1 on rank 1
        1
    """
    made: list[ProcessGroup | int] = []
    try:
        default = _parent(None, "new_group")
        require(ranks=ranks, timeout=timeout, backend=backend, group_desc=group_desc)
        require(use_local_synchronization=use_local_synchronization, sort_ranks=sort_ranks)
        listed = members(default.ranks if ranks is None else ranks, default.rank_of)
        listed = tuple(sorted(listed)) if sort_ranks else listed
        wish = _wish(default, DEFAULT_TIMEOUT_S, timeout, backend, pg_options, group_desc)
        with held:
            made.append(_new_group(default, listed, wish, use_local_synchronization))
        return made[0]
    except BaseException as error:
        not_made("new_group", made, error)
        raise


class _Wish(NamedTuple):
    """What a program wishes of new groups, beside their members."""

    timeout_s: float
    config: BackendConfig
    options: Any
    description: str = ""


def _wish(
    parent: ProcessGroup,
    default_s: float,
    timeout: Timeout | None,
    backend: str | None,
    options: Any,
    description: str | None,
) -> _Wish:
    timeout_s = default_s if timeout is None else seconds(timeout)
    config = parent.config if backend is None else usable(backend, timeout_s)
    return _Wish(timeout_s, config, options, description or "")


def _new_group(default: ProcessGroup, listed: tuple[int, ...], wish: _Wish, local: bool) -> ProcessGroup | int:
    """Make a group in the world of a first group, when nothing can be wrong with this rank's arguments any more.

    All ranks must count their groups alike.
    """
    world = default.world
    name = _local_name(world, listed) if local else f"{_within(world)}group-{world.count_group(())}"
    plan = _plan(default, name, listed, wish)
    if not local:
        plan.participants = default.ranks
    if default.global_rank in listed:
        return make_group(world, plan, Deadline(wish.timeout_s))
    if not local:
        come_together(world, plan, Deadline(wish.timeout_s))
        if plan.store is not None:  # which is kept open for the members
            stay_for(world, plan.store, MADE, len(plan.ranks))
        forget(plan.store, len(plan.participants))
    return NON_GROUP_MEMBER


def _make_each(
    made: list[Any], default: ProcessGroup, lists: Sequence[tuple[int, ...]], wish: _Wish, local: bool = False
) -> ProcessGroup | None:
    """Make groups one after the other, and note each; return this rank's own.

    The ranks of others wait for this one also if it has none, or could not make it.
    """
    first: Exception | None = None
    for ranks in lists:
        try:
            made.append(_new_group(default, tuple(sorted(ranks)), wish, local))
        except DistTimeoutError:  # somebody does not come, and would not to the next one
            raise
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
    return next((group for group in made if isinstance(group, ProcessGroup)), None)


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: Timeout | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """Cut a group into disjoint groups.

    Args:
        parent_pg: The group to cut; None is the default group. All its ranks must call.
        split_ranks: For each new group its members, as ranks in the parent.
        timeout: Default time-out of the new groups; None for the parent's.
        pg_options: Passed on to the backend.
        group_desc: A name for messages.
        backend: A backend for the new groups; None for the parent's.

    Raises:
        ValueError: The new groups overlap, or name a rank that the parent does not have.

    Returns:
        This rank's new group; None if it is in none of them.

    Examples:
        >>> part = dist.split_group(split_ranks=[[0], [1]])
        >>> dist.get_process_group_ranks(part)  # [1] on rank 1
        [0]
    """
    made: list[ProcessGroup] = []
    try:
        parent = _parent(parent_pg, "split_group")
        require(split_ranks=split_ranks or (), timeout=timeout, backend=backend, group_desc=group_desc)
        if not split_ranks:
            raise ValueError("split_group: split_ranks must list the ranks of each new group")
        lists = [members(ranks, range(parent.size()), "split_ranks") for ranks in split_ranks]
        _disjoint("split_group", lists)
        mine = next((ranks for ranks in lists if parent.rank() in ranks), None)
        if mine is None:
            return None
        listed = tuple(parent.ranks[rank] for rank in mine)
        wish = _wish(parent, parent.timeout_s, timeout, backend, pg_options, group_desc)
        with held:
            plan = _plan(parent, _local_name(parent.world, listed), listed, wish)
            made.append(make_group(parent.world, plan, Deadline(wish.timeout_s)))
        return made[0]
    except BaseException as error:
        not_made("split_group", made, error)
        raise


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: Timeout | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[ProcessGroup | int]]:
    """Cut a group into subgroups of `group_size` neighbouring ranks.

    Args:
        group_size: Ranks of each subgroup; None for the ranks of this host, as `LOCAL_WORLD_SIZE` tells.
        group: The group to cut; None is the default group.
        timeout: As for `new_group`.
        backend: As for `new_group`.
        pg_options: As for `new_group`.
        group_desc: As for `new_group`.

    Returns:
        This rank's subgroup, and all subgroups.

    Raises:
        ValueError: `group_size` does not divide the group's size.

    Examples:
        >>> mine, every = dist.new_subgroups(group_size=1)
        >>> dist.get_process_group_ranks(mine)  # [1] on rank 1
        [0]
    """
    made: list[Any] = []
    try:
        whole = _parent(group, "new_subgroups")
        require(group_size=group_size, timeout=timeout, backend=backend, group_desc=group_desc)
        first = whole.world.default or whole
        size = group_size if group_size is not None else _local_world_size()
        if not 0 < size <= whole.size() or whole.size() % size:
            raise ValueError(f"group_size={size}: a group of {whole.size()} cannot be cut into subgroups of that size")
        lists = [whole.ranks[i : i + size] for i in range(0, whole.size(), size)]
        wish = _wish(first, DEFAULT_TIMEOUT_S, timeout, backend, pg_options, group_desc)
        with held:
            mine = _make_each(made, first, lists, wish, local=whole is not first)  # of a subgroup its own ranks call
        assert mine is not None
        return mine, made
    except BaseException as error:
        not_made("new_subgroups", made, error)
        raise


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: Timeout | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | None, list[ProcessGroup | int]]:
    """Make several disjoint groups.

    Args:
        ranks_per_subgroup_list: The global ranks of each.
        timeout: As for `new_group`.
        backend: As for `new_group`.
        pg_options: As for `new_group`.
        group_desc: As for `new_group`.

    Returns:
        This rank's group (None if it is in none), and all of them.

    Raises:
        ValueError: They overlap. Nothing has been made then.

    Examples:
        >>> mine, every = dist.new_subgroups_by_enumeration([[1], [0]])
        >>> dist.get_process_group_ranks(mine)  # [1] on rank 1
        [0]
    """
    made: list[Any] = []
    try:
        default = _parent(None, "new_subgroups_by_enumeration")
        require(ranks_per_subgroup_list=ranks_per_subgroup_list)
        require(timeout=timeout, backend=backend, group_desc=group_desc)
        lists = [members(ranks, default.rank_of, "ranks_per_subgroup_list") for ranks in ranks_per_subgroup_list]
        _disjoint("new_subgroups_by_enumeration", lists)
        wish = _wish(default, DEFAULT_TIMEOUT_S, timeout, backend, pg_options, group_desc)
        with held:
            mine = _make_each(made, default, lists, wish)
        return mine, made
    except BaseException as error:
        not_made("new_subgroups_by_enumeration", made, error)
        raise


def shrink_group(
    ranks_to_exclude: Sequence[int],
    group: ProcessGroup | None = None,
    shrink_flags: int = SHRINK_DEFAULT,
    pg_options: Any = None,
) -> ProcessGroup:
    """Make a group of the survivors of another; the excluded ranks do not call.

    Ranks that die before the group is made are left out too.

    Args:
        ranks_to_exclude: Global ranks that are gone, or to be left out.
        group: The group to shrink; None is the default group.
        shrink_flags: `SHRINK_ABORT` aborts what is pending on `group` first.
        pg_options: Passed on to the backend.

    Raises:
        ValueError: Nobody is excluded, everybody is, this rank is, or one is not in the group.
        UnsupportedOperationError: The backend cannot.

    Returns:
        The group of the survivors.

    Examples:
        >>> if rank == 0:
        ...     survivors = dist.shrink_group([1])
        ...     print(survivors.size())
        1
    """
    made: list[ProcessGroup] = []
    try:
        parent = _parent(group, "shrink_group")
        require(ranks_to_exclude=ranks_to_exclude, shrink_flags=shrink_flags)
        gone = members(ranks_to_exclude, range(1 + max(parent.ranks)), "ranks_to_exclude")
        strangers = [rank for rank in gone if rank not in parent.rank_of]
        if strangers:
            raise ValueError(f"ranks_to_exclude: {strangers} are not in group {parent.group_desc!r}")
        if parent.global_rank in gone:
            raise ValueError(f"ranks_to_exclude names this rank, {parent.global_rank}; only survivors call")
        for device in parent.config.device_backend_map:
            parent.require_call("shrink_group", device)
        if shrink_flags & SHRINK_ABORT:
            parent.abort("by shrink_group")
        with held:
            made.append(_survivors(parent, set(gone), _Wish(parent.timeout_s, parent.config, pg_options)))
        return made[0]
    except BaseException as error:
        not_made("shrink_group", made, error)
        raise


def _survivors(parent: ProcessGroup, gone: set[int], wish: _Wish) -> ProcessGroup:
    """Make a group of all but those that are gone, and of those that die meanwhile.

    An attempt that a death ends, ends on all who take part in it, so that all come to the same list in the end, also if
    not all know of all deaths at the beginning.
    """
    deadline = Deadline(wish.timeout_s)
    while True:
        listed = tuple(rank for rank in parent.ranks if rank not in gone)
        try:
            return make_group(parent.world, _plan(parent, _local_name(parent.world, listed), listed, wish), deadline)
        except PeerDiedError as error:
            if error.rank not in listed:
                raise
            gone.add(error.rank)


def abort_process_group(group: ProcessGroup | None = None) -> None:
    """Abort a group, from any thread: what is pending on it, here and at its peers, ends with an error.

    Args:
        group: The group; None is the default group.

    Raises:
        ValueError: This rank is not in the group, or there is no default group.

    Examples:
        >>> pair = dist.new_group()
        >>> dist.abort_process_group(pair)
        >>> dist.barrier(pair)
        Traceback (most recent call last):
        rankwise.errors.GroupAbortedError: group 'group-1' was aborted on rank 0 by ...
    """
    with shortened:
        membership(group, "abort_process_group").abort("by abort_process_group")


def _parent(group: ProcessGroup | None, op: str) -> ProcessGroup:
    """Return a group that others can be made from, in its world; None is the default group."""
    found = membership(group, op)
    if found.world.forked:
        raise ForkedProcessError(f"{op}: this process was forked from the one that made {found!r}")
    if not found.is_open():
        raise ValueError(f"{op}: {found!r} has been destroyed")
    return found


def _plan(parent: ProcessGroup, name: str, ranks: tuple[int, ...], wish: _Wish) -> Plan:
    world = parent.world
    store = None if world.store is None else PrefixStore(name, world.store.among(world.in_store(ranks)))
    return Plan(
        *(name, ranks, parent.global_rank, wish.config, wish.timeout_s, store),
        terms={"ranks": list(ranks)},
        description=wish.description,
        options=wish.options,
    )


def _local_name(world: World, ranks: tuple[int, ...]) -> str:
    """Name a group that only its members count: by their ranks in any order, and how often they have made one."""
    who = tuple(sorted(ranks))
    return f"{_within(world)}group-of-{'-'.join(map(str, who))}-{world.count_group(who)}"


def _within(world: World) -> str:
    """Return what tells a world's groups from those of other worlds: nothing, but for those outside of the world."""
    return "" if world.home is None or world.default is None else f"{world.default.name}/"


def _disjoint(op: str, lists: list[tuple[int, ...]]) -> None:
    listed = [rank for ranks in lists for rank in ranks]
    twice = sorted({rank for rank in listed if listed.count(rank) > 1})
    if twice:
        raise ValueError(f"{op}: ranks {twice} are in more than one group")


def _local_world_size() -> int:
    import os

    text = os.environ.get("LOCAL_WORLD_SIZE")
    if text is None:
        raise ValueError("new_subgroups: give group_size; LOCAL_WORLD_SIZE, its default, is not set")
    return int(text)
