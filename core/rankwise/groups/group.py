"""What programs see of groups by their class: `ProcessGroup.create`, and the default group under torch's two names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.interrupts import held
from rankwise.basics.secrecy import given_secret
from rankwise.groups.joining import lend
from rankwise.groups.lifecycle import DEFAULT_TIMEOUT_S, begin, device_index, not_made, usable
from rankwise.groups.making import make_group
from rankwise.groups.process_group import NON_GROUP_MEMBER, Plan, ProcessGroup
from rankwise.groups.ranks import members
from rankwise.groups.world import World, current
from rankwise.store import PrefixStore, Store, StoreLike

__all__ = ["WORLD", "GroupMember", "ProcessGroup"]

if TYPE_CHECKING:
    WORLD: ProcessGroup | None
    """The default group, or None before `init_process_group`."""


class _GroupMemberMeta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group, or None before `init_process_group`."""
        return current().default


class GroupMember(metaclass=_GroupMemberMeta):
    """`GroupMember.WORLD` is the default group; `NON_GROUP_MEMBER` is what a non-member gets for a group."""

    NON_GROUP_MEMBER = NON_GROUP_MEMBER


def create(
    *,
    store: Store | StoreLike | None = None,
    rank: int,
    size: int,
    name: str,
    backend: str | None = None,
    timeout: Timeout | None = None,
    ranks: Sequence[int] | None = None,
    description: str = "",
    options: Any = None,
    device_id: Any = None,
    parent: ProcessGroup | None = None,
    secret: bytes | None = None,
) -> ProcessGroup:
    """Make a group outside of the world, and return once all its members have come.

    There need be no default group, and there may be any number of such groups. Each is watched, recorded and
    checked as a world of its own is. Every call takes it as `group`; `split_group`, `new_subgroups` and
    `shrink_group` make further groups from it, and `destroy_process_group(group)` ends it and these.

    Args:
        store: A store in which the members meet: one of rankwise's, or any that is `StoreLike`, as torch's are. It
            must serve until all have left the group, and stays the caller's. None for a group of one.
        rank: This process's rank in the group.
        size: Number of members.
        name: The group's name, the same for all members. Groups that meet in one store have different names.
        backend: As for `init_process_group`.
        timeout: Default time-out of the group's operations, and of this call; 30 minutes.
        ranks: How messages, `src` and `dst` call the members, in the order of their ranks in the group; for members
            that are known by other numbers, such as those of a larger job. 0 to `size - 1` if None.
        description: A name for messages; the group's name if empty.
        options: Passed on to the backend, as `pg_options`.
        device_id: The device that this rank uses, as an index or "cuda:1".
        parent: A group of which all members are members too, by the names in `ranks`. They meet in its store,
            and need no other client of that and no other thread to watch them; the group ends with its parent.
        secret: The job secret, if it is neither that of the store nor the one of the environment; a process may
            have groups of several jobs.

    Returns:
        The group.

    Raises:
        ValueError: The arguments contradict each other.
        RendezvousError: The processes that met do not form one group.
        DistTimeoutError: Not all members came; the missing ones are named.
        BackendNotFoundError: The backend is not installed.
        BackendUnavailableError: The backend cannot run on this machine.

    Examples:
        >>> store = dist.FileStore("store")
        >>> pair = dist.ProcessGroup.create(store=store, rank=0, size=1, name="alone")
        >>> dist.get_world_size(pair), dist.is_initialized()
        (1, False)
        >>> dist.destroy_process_group(pair)
        >>> store.close()
    """
    made: list[ProcessGroup] = []
    try:
        called = _members(name, rank, size, ranks)
        default_s = DEFAULT_TIMEOUT_S if parent is None else parent.timeout_s
        timeout_s = default_s if timeout is None else seconds(timeout)
        deadline = Deadline(timeout_s)
        config = usable(backend, timeout_s) if parent is None or backend is not None else parent.config
        terms = {"size": size, "ranks": None if ranks is None else list(called)}
        plan = Plan(
            *(name, called, called[rank], config, timeout_s, None, terms, description, options),
            device_index=device_index(device_id),
        )
        if parent is None:
            made.append(_outside(plan, store, secret, deadline))
        else:
            made.append(_within(parent, plan, store, secret, deadline))
        return made[0]
    except BaseException as error:
        not_made("ProcessGroup.create", made, error)
        raise


def _outside(plan: Plan, store: Store | StoreLike | None, secret: bytes | None, deadline: Deadline) -> ProcessGroup:
    """Make the first group of a world of its own, and note that world in the one of this context."""
    if store is None and len(plan.ranks) > 1:
        raise ValueError(f"{_what(plan.name)}: its {len(plan.ranks)} members need a store to meet in")
    home = current()
    world = World(home=home)
    if secret is not None:
        world.secret = given_secret(secret, "ProcessGroup.create")

    def find() -> Plan:
        return plan if store is None else replace(plan, store=lend(world, home, store, plan.global_rank, plan.name))

    made = begin(world, find, deadline)
    home.outside.append(world)
    return made


def _within(
    parent: ProcessGroup, plan: Plan, store: Store | StoreLike | None, secret: bytes | None, deadline: Deadline
) -> ProcessGroup:
    """Make a group where its parent was made: they have one store, one watcher, and one end."""
    world, what = parent.world, _what(plan.name)
    if store is not None:
        raise ValueError(f"{what}: its members meet in the store of its parent, not in another")
    if secret is not None:
        raise ValueError(f"{what}: its secret is that of its parent")
    if not parent.is_open():
        raise ValueError(f"{what}: its parent {parent!r} has been destroyed")
    if plan.name in world.groups:
        raise ValueError(f"{what}: there is a group of that name")
    if not set(plan.ranks) <= set(parent.ranks) or plan.global_rank != parent.global_rank:
        raise ValueError(f"{what}: its members {list(plan.ranks)} must be this rank and others of {parent!r}")
    count = world.count_group(plan.name)
    place = None if world.store is None else PrefixStore(f"named/{plan.name}-{count}", world.store)
    with held:
        return make_group(world, replace(plan, store=place, terms={"ranks": list(plan.ranks)}), deadline)


def _members(name: str, rank: int, size: int, ranks: Sequence[int] | None) -> tuple[int, ...]:
    """Return what the members are called.

    Raises:
        ValueError: The arguments contradict each other.
    """
    if not name:
        raise ValueError("ProcessGroup.create: a group needs a name, the same for all members")
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"{_what(name)}: there is no rank {rank} in a group of {size}")
    if ranks is None:
        return tuple(range(size))
    called = members(ranks, ranks)
    if len(called) != size or min(called) < 0:
        raise ValueError(f"{_what(name)}: ranks must name each of its {size} members, not {list(called)}")
    return called


def _what(name: str) -> str:
    return f"ProcessGroup.create: group {name!r}"


ProcessGroup.create = staticmethod(create)


def __getattr__(name: str) -> ProcessGroup | None:
    if name == "WORLD":
        return current().default
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
