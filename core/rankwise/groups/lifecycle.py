"""From no group to a world, and back."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rankwise.backends.backend import BackendConfig
from rankwise.backends.registry import registry
from rankwise.basics.attending import dismiss
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.debug import debug_log
from rankwise.basics.interrupts import held, is_interrupt
from rankwise.basics.loading import load_next
from rankwise.basics.systems import keep_standard
from rankwise.basics.tracebacks import shorten, shortened
from rankwise.errors import BackendUnavailableError, DistError
from rankwise.groups import observers
from rankwise.groups.handshake import REFUSALS, leave, wait_for
from rankwise.groups.joining import Joined, find_store, join
from rankwise.groups.making import make_group
from rankwise.groups.process_group import NON_GROUP_MEMBER, Plan, ProcessGroup
from rankwise.groups.world import World, current
from rankwise.store import Store, StoreLike, innermost

#: Long, as in torch: a dead peer is noticed immediately, and a slow one is no error.
DEFAULT_TIMEOUT_S = 1800.0

#: How long the rank that keeps the store stays for others that are still making a group, or have yet to hear why not.
_STAY_S = 3.0
#: How long a rank that leaves a group may take to take its keys out of the store.
_SWEEP_S = 5.0
#: How long a rank that cannot take part looks for the others' meeting place.
_REFUSING_S = 10.0


def is_initialized() -> bool:
    """Return whether there is a default group.

    Returns:
        True between `init_process_group` and `destroy_process_group`.

    Examples:
        >>> dist.is_initialized()
        False
    """
    return current().default is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Timeout | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | StoreLike | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
    enable_reconfigure: bool = False,
) -> None:
    """Make the default group, and return once all its ranks have joined.

    Args:
        backend: A backend's name, or one for each kind of device ("cpu:gloo,cuda:nccl"); None takes the default
            of each kind of device, as far as it can run here.
        init_method: Where the ranks meet: "env://" (the default), "tcp://host:port", "file:///path", or a scheme
            of `register_rendezvous_handler`. Without it, and without variables of a launcher, this process is
            a world of one, and says so in the log.
        timeout: Default time-out of the group's operations, and of this call: a `timedelta` or seconds; 30 minutes.
        world_size: Number of ranks, if `init_method` does not contain it.
        rank: This process's rank, if `init_method` does not contain it.
        store: A store to meet in, instead of `init_method`: one of rankwise's, or any that is `StoreLike`.
        group_name: A name for messages.
        pg_options: Passed on to the backend.
        device_id: The device that this rank uses, as an index or "cuda:1"; lets a backend connect immediately.
        enable_reconfigure: Only open the store: the default group has no members until `reconfigure` gives it some.
            `rank` and `world_size` then only help to find the store, and tell how many processes begin.

    Raises:
        ValueError: There is a default group already, or the arguments contradict each other.
        RendezvousError: The processes that met do not form one world.
        DistTimeoutError: Not all ranks joined; the missing ones are named.
        BackendNotFoundError: The backend is not installed.
        BackendUnavailableError: The backend cannot run on this machine.

    Examples:
        As one of the processes that `rankwise run` starts:

        >>> dist.init_process_group("gloo")
        >>> dist.get_rank(), dist.get_world_size()
        (0, 1)
        >>> dist.destroy_process_group()
    """
    made: list[ProcessGroup] = []
    try:
        world = current()
        if world.forked:
            world.reset()
        if world.default is not None:
            raise ValueError("init_process_group: the default process group is already there; destroy it first")
        if store is not None and init_method is not None:
            raise ValueError("init_process_group: give init_method or store, not both")
        timeout_s = DEFAULT_TIMEOUT_S if timeout is None else seconds(timeout)
        deadline = Deadline(timeout_s)
        config = usable(backend, timeout_s)
        index = device_index(device_id)
        if enable_reconfigure:
            find_it = partial(find_store, world, config, init_method, world_size, rank, store)
            blank = Plan("default", (), -1, config, timeout_s, None, {}, group_name, pg_options, index)
            made.append(_open(world, blank, find_it, deadline))
            return

        def plan() -> Plan:
            find = partial(join, world, config, init_method, world_size, rank, store)
            place = _find(find, config.refusal, deadline)
            return Plan(
                *("default", tuple(range(place.size)), place.rank, config, timeout_s, place.store),
                terms={"world_size": place.size},
                description=group_name,
                options=pg_options,
                device_index=index,
                purpose="init_process_group",
            )

        made.append(begin(world, plan, deadline))
    except BaseException as error:
        not_made("init_process_group", made, error)
        raise


def _open(
    world: World, blank: Plan, find: Callable[[Deadline], tuple[Store, int, int]], deadline: Deadline
) -> ProcessGroup:
    """Begin a world whose default group has no members until `reconfigure` gives it some."""
    from rankwise.groups.places import enable  # which few programs need

    if blank.config.refusal is not None:
        raise blank.config.refusal
    keep_standard()
    load_next()
    try:
        opened = enable(world, *find(deadline), blank, deadline)
    except BaseException:
        with held:
            _release(world)
        raise
    _close_at_exit()
    return opened


def begin(world: World, plan: Callable[[], Plan], deadline: Deadline) -> ProcessGroup:
    """Make the first group of a world; `plan` finds the meeting place, which it notes in the world."""
    keep_standard()
    meets, left = False, set((world.home or world).left_marks)
    try:
        first = plan()
        with held:
            meets = True
            return _begin(world, first, deadline)
    except BaseException as error:
        with held:
            if not meets and is_interrupt(error):  # nobody knows of it there, and it may come again
                world.joined, (world.home or world).left_marks = None, left
            if world.default is None:
                _release(world)
            else:
                _give_up(world.default, error, "init_process_group")
        raise


def not_made(op: str, made: Sequence[ProcessGroup | int | None], error: BaseException) -> None:
    """End a public call that raises: give up the groups that it has made if it was interrupted.

    Only the function that the program has called calls this, at its end: see `rankwise.basics.interrupts`.
    """
    if made and is_interrupt(error):
        with held:
            for group in made:
                if isinstance(group, ProcessGroup) and group.is_open():
                    _give_up(group, error, op)
    shorten(error)


def _give_up(group: ProcessGroup, error: BaseException, op: str) -> None:
    group.interrupted(error, op)
    with contextlib.suppress(DistError):
        destroy_process_group(group)


def _find(find: Callable[[Deadline], Joined], refusal: DistError | None, deadline: Deadline) -> Joined:
    """Find the meeting place; a rank that has only to tell the others that it refuses does not wait long for it."""
    if refusal is None:
        return find(deadline)
    try:
        return find(Deadline(min(deadline.timeout_s, _REFUSING_S)))
    except (DistError, ValueError) as error:
        raise refusal from error


def _begin(world: World, first: Plan, deadline: Deadline) -> ProcessGroup:
    debug_log(
        f"rank {first.global_rank} of {len(first.ranks)} (pid {os.getpid()}) meets the others at "
        f"{_where(first.store)}; backends: {first.config.listed()}"
    )
    world.store = first.store
    world.watcher = observers.begin(world, first.global_rank, first.ranks)
    load_next()
    made = world.default = make_group(world, first, deadline)
    observers.start(world)
    made.make_ready()
    if (store := innermost(first.store)) is not None:
        store._have_met()
    _close_at_exit()
    return made


def _where(store: Store | None) -> str:
    """Tell where the store is, and whether a job secret guards it."""
    if (inner := innermost(store)) is None:
        return "no store"
    return f"{inner!r}, {'without' if inner.secret is None else 'with'} a job secret"


def destroy_process_group(group: ProcessGroup | int | None = None) -> None:
    """Complete all operations of a group, then free its resources.

    Args:
        group: The group; None or the default group destroys all groups of the world and leaves it. So does a group of
            `ProcessGroup.create` with those that were made from it.

    Raises:
        ValueError: There is no such group (any more).

    Examples:
        >>> dist.init_process_group("gloo")
        >>> dist.destroy_process_group()
        >>> dist.is_initialized()
        False
    """
    with shortened, held:
        if group == NON_GROUP_MEMBER:
            return
        if not isinstance(group, ProcessGroup | None):
            raise TypeError(f"destroy_process_group: {group!r} is not a process group")
        world = current() if group is None else group.world
        if world.default is None:
            raise ValueError("destroy_process_group: there is no process group; was it destroyed before?")
        if world.forked:
            world.reset()
        elif group is None or group is world.default:
            leave_world(world)
        elif world.groups.get(group.name) is not group:
            raise ValueError(f"destroy_process_group: {group!r} was destroyed before")
        else:
            del world.groups[group.name]
            try:
                group.close(group.timeout_s)
            finally:
                world.part_with([group])
            forget(group.store, group.came)


def leave_everything() -> None:
    """Destroy all groups of this context, of whatever world; the first error is raised after the rest."""
    errors: list[DistError] = []
    for world in reversed(current().worlds()):
        if world.default is not None:
            try:
                destroy_process_group(world.default)
            except DistError as error:
                errors.append(error)
    if errors:
        raise errors[0]


def usable(backend: str | None, timeout_s: float) -> BackendConfig:
    """Return what a program has asked for; if that cannot run here, one that refuses when the ranks meet.

    Then the others are told too, so that each backend must have said whether it can in half of the time.
    """
    try:
        config = BackendConfig(backend)
        for name in config.backends():
            answer = registry.availability(name, timeout_s / 2)
            if not answer:
                remedy = f"; {answer.remedy}" if answer.remedy else ""
                raise BackendUnavailableError(f"backend {name!r} cannot run here: {answer.reason}{remedy}")
    except REFUSALS as error:
        return BackendConfig.refused(error)
    return config


def device_index(device_id: Any) -> int | None:
    """Return the index of a device given as an index, as "cuda:1", or as a library's object; None if it tells none."""
    if device_id is None or isinstance(device_id, int):
        return device_id
    index = device_id.partition(":")[2] if isinstance(device_id, str) else getattr(device_id, "id", "")
    return int(index) if index != "" else None


def leave_world(world: World, why: str = "the groups were destroyed", limit_s: float = float("inf")) -> None:
    """Close all groups, the default group last; whatever fails, the world is left.

    Observers write down why, and what has been issued may take so long to complete at the most.
    """
    observers.stop(world, why)
    errors: list[BaseException] = []
    for group in reversed(list(world.groups.values())):
        try:
            group.close(min(limit_s, group.timeout_s))
        except BaseException as error:
            errors.append(error)
    _release(world)
    if errors:
        raise errors[0]


def _release(world: World) -> None:
    """Close the store that was opened for the world, and forget everything."""
    if world.place is not None:
        world.place.end()
    if world.watcher is not None:
        world.watcher.stop()
    if world.lent_store and world.default is not None:
        forget(world.store, world.default.came)
    if _is_needed_by_others(world):
        _stay(world.stay_for)
    if world.owned_store is not None:
        world.owned_store.close()
    dismiss()
    world.reset()
    if world.home is not None and world in world.home.outside:
        world.home.outside.remove(world)


def forget(store: Store | None, came: int) -> None:
    """Take the keys of a group that this rank has left out of its store, if it is the last to leave.

    So many came to make it, members or not: one that is slow may still look there for the outcome.
    """
    if store is not None:
        with contextlib.suppress(DistError):  # the host of the store is gone, and the keys with it
            leave(store.view(_SWEEP_S), came)


def _is_needed_by_others(world: World) -> bool:
    """Tell whether ranks that come late would miss this one: it serves the store, or they would begin a new file."""
    store = world.owned_store
    late_for_file = store is not None and store.ends_with_its_users and world.default is None
    return late_for_file or world.serves_store()


def _stay(stay_for: Sequence[tuple[Store, str, int]]) -> None:
    deadline = Deadline(_STAY_S)
    with contextlib.suppress(DistError):
        for store, counter, count in stay_for:
            wait_for(store, counter, count, deadline)


def _close_at_exit() -> None:
    # Registered anew each time, so that it runs before what the program has registered earlier, and only once.
    atexit.unregister(_exit)
    atexit.register(_exit)
    util, process = (sys.modules.get(f"multiprocessing.{name}") for name in ("util", "process"))
    if util is not None and process is not None and process.parent_process() is not None:
        # A process of multiprocessing that was forked ends without those handlers; and here its exception is known.
        util.Finalize(None, _exit, exitpriority=0)


def _exit() -> None:
    """Leave in haste: the process ends without having destroyed its groups."""
    worlds = [world for world in current().worlds() if world.default is not None and not world.forked]
    for world in worlds:
        world.stay_for.clear()
        observers.stop(world, "the process ended")
        for group in world.groups.values():
            group.process_ends()
    for world in reversed(worlds):
        with contextlib.suppress(DistError):
            leave_world(world)
