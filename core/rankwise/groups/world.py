"""All process-wide state, in one object: which groups there are.

A context may have a world of its own, as each rank of `rankwise_local.local_world` has. A group made by
`ProcessGroup.create` has one too, whose default group it is; the context's world knows it. Nothing else in the core is
global but the registries of backends, of converters and of callers to skip.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any

from rankwise.basics import unasked
from rankwise.basics.recording import FlightRecorder, make_recorder
from rankwise.basics.systems import after_fork
from rankwise.errors import ForkedProcessError, GroupAbortedError
from rankwise.groups.process_group import NON_GROUP_MEMBER, ProcessGroup

if TYPE_CHECKING:
    from rankwise.basics.secrecy import Secret
    from rankwise.store import Store


class _AtKnownPlace:
    """What compiled code reads of a world in each plain call."""

    __slots__ = ("default",)


@dataclass(eq=False)
class World(_AtKnownPlace):
    """The groups of one rank that were made from one first group."""

    #: The group that the others are made from: that of `init_process_group`, or of `ProcessGroup.create`.
    default: ProcessGroup | None = field(default_factory=NoneType)
    #: All live groups by name, the default group first.
    groups: dict[str, ProcessGroup] = field(default_factory=dict)
    #: The store of the job, under the prefix of this life of the default group.
    store: Store | None = None
    #: What to close with the default group: a store that `init_process_group` made.
    owned_store: Store | None = None
    #: Whether the program has given the store, which then outlives the groups.
    lent_store: bool = False
    #: The job secret that its groups were given, or their store has; without one, backends look for the process's.
    secret: Secret | None = None
    #: How many groups were ever made in this life: by all ranks together under (), by some alone under their ranks, and
    #: by `ProcessGroup.create` with a parent under their name. All who count there count alike.
    groups_made: Counter[object] = field(default_factory=Counter)
    #: Groups' stores, counters in them, and what these must reach before the host of the store may leave: all members
    #: have made a group, or all have heard why not.
    stay_for: list[tuple[Store, str, int]] = field(default_factory=list)
    #: For each rendezvous address, the life that this process has left there and must not join again.
    left: dict[str, bytes] = field(default_factory=dict)
    #: Where this life was joined: an address and the mark of the life.
    joined: tuple[str, bytes] | None = None
    #: The marks of all lives that were joined in stores given by the program, and as which rank; none is joined twice.
    left_marks: set[tuple[bytes, int]] = field(default_factory=set)
    #: What this rank has called last.
    recorder: FlightRecorder = field(default_factory=make_recorder)
    #: What its default group is reconfigured with; None of one that cannot be.
    place: Any = None
    #: For each backend with a runtime of its own, what that calls the members of a default group that was reconfigured.
    runtime_ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: What sees who lives, and has all ranks raise the same error; None where nobody else is there.
    watcher: Any = None
    #: This is the copy of a world in a forked child: nothing in it may be used or closed.
    forked: bool = False
    #: The worlds of the groups that `ProcessGroup.create` has made in this context.
    outside: list[World] = field(default_factory=list)
    #: For such a world, the one that lists it there.
    home: World | None = None
    #: Why no group can be made in it or outside of it, for as long as that is so; see `stop`.
    stopped: GroupAbortedError | None = None
    #: Called with groups that are about to be forgotten, when nothing goes on in them any more.
    on_leaving: list[Callable[[list[ProcessGroup]], object]] = field(default_factory=list)

    def worlds(self) -> list[World]:
        """Return this world and those outside of it."""
        return [self, *self.outside]

    def every_group(self) -> list[ProcessGroup]:
        """Return all live groups of this context, in whatever world."""
        return [group for world in self.worlds() for group in list(world.groups.values())]

    def count_group(self, kind: object) -> int:
        """Count a group that is to be made; return how many there are of its kind, see `groups_made`."""
        self.groups_made[kind] += 1
        return self.groups_made[kind]

    def stop(self, reason: str) -> None:
        """Abort all groups of this context and end the making of others, as one of several ranks has failed.

        Args:
            reason: How or why, for the message; it follows "was aborted on rank 1".
        """
        self.stopped = GroupAbortedError(f"the making of a group was aborted {reason}")
        for group in self.every_group():
            group.abort(reason)

    def in_runtime(self, ranks: Sequence[int], name: str) -> tuple[int, ...]:
        """Return what some ranks are called in a backend's own runtime; nothing where they are called the same."""
        theirs = self.runtime_ranks.get(name)
        return () if theirs is None else tuple(theirs[rank] for rank in ranks)

    def in_store(self, ranks: Sequence[int]) -> Sequence[int]:
        """Return what some ranks are called in the job's store, which is that of the first runtime if there is one."""
        return next((self.in_runtime(ranks, name) for name in self.runtime_ranks), ranks)

    def serves_store(self) -> bool:
        """Tell whether this process serves the store that the others meet in, so that they would miss it."""
        from rankwise.store import innermost  # which has long been loaded where there is one

        return getattr(innermost(self.owned_store or self.store), "is_master", False)

    @property
    def host(self) -> int | None:
        """The rank that serves the store that `init_process_group` has made; None of others' stores."""
        return 0 if not self.lent_store and hasattr(self.owned_store, "is_master") else None

    @property
    def is_read(self) -> bool:
        """Whether somebody reads, now and then, what is counted."""
        return bool((self.home or self).on_leaving)

    def part_with(self, groups: list[ProcessGroup]) -> None:
        """Hand the figures of groups that are about to be forgotten to the readers of figures."""
        for told in list((self.home or self).on_leaving):
            try:
                told(groups)
            except Exception as error:  # a job must not end for trouble of its monitoring
                import logging

                logging.getLogger("rankwise").warning("the last figures of a group are not reported: %r", error)

    def reset(self) -> None:
        """Go back to the state before `init_process_group`, but for the memory of the lives that were left."""
        left = self.left
        if self.joined is not None:
            left[self.joined[0]] = self.joined[1]
        unasked.look()
        if not self.forked:
            self.part_with(list(self.groups.values()))
        self.recorder.clear()
        kept = {name: getattr(self, name) for name in ("left_marks", "outside", "home", "on_leaving")}
        self.default = None
        vars(self).update(vars(World(left=left, **kept)))


CONTEXTS_WORLD: ContextVar[World] = ContextVar("rankwise_world", default=World())  # noqa: B039 - it is the process's

#: Returns the world of this context: the process's, unless `use` has set another.
current = CONTEXTS_WORLD.get


def use(world: World) -> Any:
    """Make `world` the one of this context, and return a token for `ContextVar.reset`."""
    return CONTEXTS_WORLD.set(world)


def resolve(group: Any, op: str) -> ProcessGroup | None:
    """Return the group that a call means; None, with a warning, for a non-member.

    Raises:
        ValueError: There is no default group.
        TypeError: `group` is no group.
    """
    if group is None:
        group = CONTEXTS_WORLD.get().default
        if group is None:
            raise ValueError(f"{op}: there is no default process group; call init_process_group first")
        return group  # type: ignore[no-any-return]
    if isinstance(group, ProcessGroup):
        return group
    if group == NON_GROUP_MEMBER:
        warnings.warn(f"{op} does nothing on this rank, which is not a member of the group", stacklevel=3)
        return None
    raise TypeError(f"{op}: group must be a ProcessGroup or None, not {group!r}")


def membership(group: Any, op: str) -> ProcessGroup:
    """Return the group that a call means, of which this process must be a member.

    Raises:
        ValueError: It is none, or there is no default group.
    """
    found = resolve(group, op)
    if found is None:
        raise ValueError(f"{op}: this process is not a member of the group")
    return found


def _after_fork() -> None:
    """Make the child's copies of the parent's groups refuse to work: their sockets and threads are the parent's."""
    error = ForkedProcessError(
        "this process was forked from one that had called init_process_group or ProcessGroup.create; groups do not "
        "survive a fork. Make them in the child, or start it with spawn"
    )
    for world in CONTEXTS_WORLD.get().worlds():
        world.forked = True
        for group in world.groups.values():
            group.poison(error)
    unasked.lose(error)


after_fork(_after_fork)
