"""Groups outside of the world: each is the first group of a world of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.interrupts import held
from rankwise.basics.secrecy import given_secret
from rankwise.groups.joining import lend
from rankwise.groups.lifecycle import DEFAULT_TIMEOUT_S, begin, device_index, usable
from rankwise.groups.making import Plan, make_group
from rankwise.groups.process_group import ProcessGroup
from rankwise.groups.ranks import members
from rankwise.groups.world import World, current
from rankwise.store import PrefixStore, Store, StoreLike

__all__ = ["GroupRequest", "create"]


class GroupRequest(NamedTuple):
    """What `ProcessGroup.create` was asked for; it says what each of these is."""

    store: Store | StoreLike | None
    rank: int
    size: int
    name: str
    backend: str | None
    timeout: Timeout | None
    ranks: Sequence[int] | None
    description: str
    options: Any
    device_id: Any
    parent: ProcessGroup | None
    secret: bytes | None


def create(asked: GroupRequest) -> ProcessGroup:
    """Make the group, and note its world in that of this context; in the world of its parent, if it has one."""
    if asked.parent is not None:
        return _with_parent(asked, asked.parent)
    timeout_s = DEFAULT_TIMEOUT_S if asked.timeout is None else seconds(asked.timeout)
    deadline = Deadline(timeout_s)
    ranks = _checked(asked)
    config = usable(asked.backend, timeout_s)
    index = device_index(asked.device_id)
    home = current()
    world = World(home=home)
    if asked.secret is not None:
        world.secret = given_secret(asked.secret, "ProcessGroup.create")

    def plan() -> Plan:
        store = None if asked.store is None else lend(world, home, asked.store, ranks[asked.rank], asked.name)
        return Plan(
            *(asked.name, ranks, ranks[asked.rank], config, timeout_s, store),
            terms={"size": asked.size, "ranks": None if asked.ranks is None else list(ranks)},
            description=asked.description,
            options=asked.options,
            device_index=index,
        )

    made = begin(world, plan, deadline)
    home.outside.append(world)
    return made


def _with_parent(asked: GroupRequest, parent: ProcessGroup) -> ProcessGroup:
    """Make the group where its parent was made: they have one store, one watcher, and one end."""
    world, what = parent.world, f"ProcessGroup.create: group {asked.name!r}"
    ranks = _checked(asked)
    if world.groups.get(parent.name) is not parent:
        raise ValueError(f"{what}: its parent {parent!r} has been destroyed")
    if asked.name in world.groups:
        raise ValueError(f"{what}: there is a group of that name")
    if not set(ranks) <= set(parent.ranks) or ranks[asked.rank] != parent.global_rank:
        raise ValueError(f"{what}: its members {list(ranks)} must be this rank and others of {parent!r}")
    timeout_s = parent.timeout_s if asked.timeout is None else seconds(asked.timeout)
    config = parent.config if asked.backend is None else usable(asked.backend, timeout_s)
    count = world.named_groups_made[asked.name] = world.named_groups_made.get(asked.name, 0) + 1
    store = None if world.store is None else PrefixStore(f"named/{asked.name}-{count}", world.store)
    plan = Plan(
        *(asked.name, ranks, parent.global_rank, config, timeout_s, store),
        terms={"ranks": list(ranks)},
        description=asked.description,
        options=asked.options,
        device_index=device_index(asked.device_id),
    )
    with held:
        return make_group(world, plan, Deadline(timeout_s))


def _checked(asked: GroupRequest) -> tuple[int, ...]:
    """Return what the members are called.

    Raises:
        ValueError: The arguments contradict each other.
    """
    what = f"ProcessGroup.create: group {asked.name!r}"
    if not asked.name:
        raise ValueError("ProcessGroup.create: a group needs a name, the same for all members")
    if asked.size < 1 or not 0 <= asked.rank < asked.size:
        raise ValueError(f"{what}: there is no rank {asked.rank} in a group of {asked.size}")
    if asked.parent is not None and asked.store is not None:
        raise ValueError(f"{what}: its members meet in the store of its parent, not in another")
    if asked.parent is not None and asked.secret is not None:
        raise ValueError(f"{what}: its secret is that of its parent")
    if asked.store is None and asked.parent is None and asked.size > 1:
        raise ValueError(f"{what}: its {asked.size} members need a store to meet in")
    if asked.ranks is None:
        return tuple(range(asked.size))
    ranks = members(asked.ranks, asked.ranks)
    if len(ranks) != asked.size or min(ranks) < 0:
        raise ValueError(f"{what}: ranks must name each of its {asked.size} members, not {list(ranks)}")
    return ranks
