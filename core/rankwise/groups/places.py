"""What a process keeps whose default group is reconfigured, and how such a group begins."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from rankwise.backends.registry import registry
from rankwise.basics.deadline import Deadline
from rankwise.groups.handshake import process_space, started_at
from rankwise.groups.process_group import Plan, ProcessGroup
from rankwise.groups.world import World
from rankwise.store import PrefixStore, Store

#: Where in the job's store the attempts are made.
_PLACE = "reconfigure"


@dataclass
class Place:
    """What a process keeps from one configuration of its default group to the next."""

    #: Where all attempts are made.
    store: Store
    #: What `init_process_group` has opened, and closes with the group.
    owned: Store | None
    #: What tells this process from all others.
    handle: str
    #: What was asked for, without members.
    plan: Plan
    #: How many processes there should be at first, as far as this one was told.
    size: int
    #: Called when the group is destroyed for good.
    on_end: list[Callable[[], object]] = field(default_factory=list)
    #: The uuids of the attempts that this process has taken part in, in their order.
    used: list[str] = field(default_factory=list)
    #: How many of these have been taken out of the store.
    swept: int = 0
    #: The uuid of the attempt that has made the group as it is; "" where none has.
    current: str = ""

    def end(self) -> None:
        """Tell that the group is about to be destroyed."""
        for told in self.on_end:
            told()


def enable(world: World, store: Store, rank: int, size: int, plan: Plan, deadline: Deadline) -> ProcessGroup:
    """Begin a world without groups, whose default group has no members yet; the plan has neither these nor a store.

    The store is the same for all who may ever be members; rank and size are what this process was told. By the deadline
    the processes of a backend's own runtime must have come.

    Raises:
        UnsupportedOperationError: A backend's groups cannot be reconfigured.
    """
    for name in plan.config.backends():
        registry.load(name)
    group = ProcessGroup(plan, {}, world)
    for device in plan.config.device_backend_map:
        group.require_call("reconfigure", device)
    place = Place(PrefixStore(_PLACE, store), world.owned_store, "", plan, size)
    place.handle = _handle(place.store, rank, _jobs(plan, deadline))
    group.lacks_members("has no members yet: call reconfigure")
    world.place = place
    stand(world, group)
    return group


def stand(world: World, group: ProcessGroup) -> None:
    """Have a group be the default group of a world."""
    world.default = world.groups["default"] = group


def _jobs(plan: Plan, deadline: Deadline) -> dict[str, tuple[str, int]]:
    """Return for each backend with a runtime of its own which job of that this process is in, and as which rank."""
    jobs = {}
    for name in plan.config.backends():
        runtime = registry.runtime(name, deadline.remaining())
        if runtime is not None and runtime.job is not None:
            ask = partial(runtime.job, deadline.remaining())
            jobs[name] = registry.supervision(name).call("runtime", ask, deadline), runtime.rank
    return jobs


def _handle(store: Store, rank: int, jobs: dict[str, tuple[str, int]]) -> str:
    """Return a new handle: what tells a process from all others, and others whether it is still there."""
    mark = store.compare_set("mark", "", os.urandom(8).hex()).decode()
    seat = {"host": platform.node(), "pid": os.getpid(), "space": process_space(), "started": started_at(os.getpid())}
    return json.dumps({"store": mark, "id": os.urandom(8).hex(), "rank": rank, "jobs": jobs, **seat}, sort_keys=True)
