"""Groups outside of the world: each is the first group of a world of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rankwise.backends.backend import BackendConfig
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.groups.joining import lend
from rankwise.groups.lifecycle import DEFAULT_TIMEOUT_S, available, begin, device_index
from rankwise.groups.making import Plan
from rankwise.groups.process_group import ProcessGroup
from rankwise.groups.ranks import members
from rankwise.groups.world import World, current
from rankwise.store import Store, StoreLike

__all__ = ["Request", "create"]


class Request(NamedTuple):
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


def create(asked: Request) -> ProcessGroup:
    """Make the group, and note its world in that of this context."""
    timeout_s = DEFAULT_TIMEOUT_S if asked.timeout is None else seconds(asked.timeout)
    deadline = Deadline(timeout_s)
    ranks = _checked(asked)
    config = available(BackendConfig(asked.backend))
    index = device_index(asked.device_id)
    home = current()
    world = World(home=home)

    def plan() -> Plan:
        store = None if asked.store is None else lend(world, home, asked.store, asked.rank, asked.name)
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


def _checked(asked: Request) -> tuple[int, ...]:
    """Return what the members are called.

    Raises:
        ValueError: The arguments contradict each other.
    """
    what = f"ProcessGroup.create: group {asked.name!r}"
    if not asked.name:
        raise ValueError("ProcessGroup.create: a group needs a name, the same for all members")
    if asked.size < 1 or not 0 <= asked.rank < asked.size:
        raise ValueError(f"{what}: there is no rank {asked.rank} in a group of {asked.size}")
    if asked.store is None and asked.size > 1:
        raise ValueError(f"{what}: its {asked.size} members need a store to meet in")
    if asked.ranks is None:
        return tuple(range(asked.size))
    ranks = members(asked.ranks, asked.ranks)
    if len(ranks) != asked.size or min(ranks) < 0:
        raise ValueError(f"{what}: ranks must name each of its {asked.size} members, not {list(ranks)}")
    return ranks
