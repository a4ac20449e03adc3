"""From no group to a world, and back."""

from __future__ import annotations

import atexit
import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from rankwise.backends.backend import BackendConfig
from rankwise.backends.contract import API_VERSION, Communicator, Context
from rankwise.backends.registry import registry
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.system_errors import cause
from rankwise.basics.version import __version__
from rankwise.errors import (
    BackendUnavailableError,
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    DistTimeoutError,
    PeerDiedError,
    RendezvousError,
)
from rankwise.groups.attended import attended
from rankwise.groups.handshake import MEETING, death_verdict, died, has_reached, leave, meet, to_be_told, wait_for
from rankwise.groups.joining import join
from rankwise.groups.process_group import NON_GROUP_MEMBER, ProcessGroup
from rankwise.groups.world import World, current
from rankwise.store import FileStore, PrefixStore, Store

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "MADE_TOLD",
    "Plan",
    "available",
    "come_together",
    "destroy_process_group",
    "init_process_group",
    "is_initialized",
    "make_group",
    "stay_for",
]

#: Long, as in torch: a dead peer is noticed at once, and a slow one is no error.
DEFAULT_TIMEOUT_S = 1800.0

#: How long whoever keeps the store stays for others that are still making a group with it, or have yet to hear why not.
_STAY_S = 3.0
#: From how many such reasons to stay on it is seen whether the oldest still holds.
_REMEMBERED = 32
_MADE = "ok"
#: Counts, in a group's store, who has heard that it is made.
MADE_TOLD = "made/told"

#: How long telling the others that a group cannot be made may take, where the store may be out of reach.
_TELL_S = 1.0
#: How soon it is known that a process has ended whose connection has, and how often to look.
_FOUND_S, _GLANCE_S = 0.3, 0.01
#: How long a rank that leaves a group may take to take its keys out of the store.
_SWEEP_S = 5.0


@dataclass
class Plan:
    """A group to be made: what `make_group` needs beside the world."""

    name: str
    ranks: tuple[int, ...]
    global_rank: int
    config: BackendConfig
    timeout_s: float
    store: Store | None
    description: str = ""
    options: Any = None
    device_index: int | None = None
    #: All who must come before the group is made; its members, if empty.
    participants: tuple[int, ...] = ()


def is_initialized() -> bool:
    """Tell whether there is a default group."""
    return current().default is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Timeout | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Make the default group, and return once all its ranks have come.

    Args:
        backend: A backend's name, or one for each kind of device ("cpu:gloo,cuda:nccl"); None takes the default
            of each kind of device, as far as it can run here.
        init_method: Where the ranks meet: "env://" (the default), "tcp://host:port", "file:///path", or a scheme
            of `register_rendezvous_handler`.
        timeout: Default time-out of the group's operations, and of this call: a `timedelta` or seconds; 30 minutes.
        world_size: Number of ranks, where `init_method` does not tell.
        rank: This process's rank, where `init_method` does not tell.
        store: A store to meet in, instead of `init_method`.
        group_name: A name for messages.
        pg_options: Passed on to the backend.
        device_id: The device that this rank uses, as an index or "cuda:1"; lets a backend connect at once.

    Raises:
        ValueError: There is a default group already, or the arguments contradict each other.
        RendezvousError: The processes that met do not form one world.
        DistTimeoutError: Not all ranks came; the missing ones are named.
        BackendNotFoundError: The backend is not installed.
        BackendUnavailableError: The backend cannot run on this machine.
    """
    world = current()
    if world.forked:
        world.reset()
    if world.default is not None:
        raise ValueError("init_process_group: the default process group is already there; destroy it first")
    if store is not None and init_method is not None:
        raise ValueError("init_process_group: give init_method or store, not both")
    timeout_s = DEFAULT_TIMEOUT_S if timeout is None else seconds(timeout)
    deadline = Deadline(timeout_s)
    config = available(BackendConfig(backend))
    index = _device_index(device_id)
    try:
        place = join(world, config, init_method, world_size, rank, store, deadline)
        world.store, everyone = place.store, tuple(range(place.size))
        world.watcher = _watch().begin(world, place.rank, place.size)
        plan = Plan("default", everyone, place.rank, config, timeout_s, place.store, group_name, pg_options, index)
        world.default = make_group(world, plan, deadline)
    except BaseException:
        _release(world)
        raise
    _watch().start(world)
    _close_at_exit()


def destroy_process_group(group: ProcessGroup | int | None = None) -> None:
    """Finish what has been issued on a group, then give back all that it holds.

    Args:
        group: The group; None or the default group destroys all groups and leaves the world.

    Raises:
        ValueError: There is no such group (any more).
    """
    world = current()
    if world.default is None:
        raise ValueError("destroy_process_group: there is no process group; was it destroyed before?")
    if group == NON_GROUP_MEMBER:
        return
    if not isinstance(group, ProcessGroup | None):
        raise TypeError(f"destroy_process_group: {group!r} is not a process group")
    if world.forked:
        world.reset()
    elif group is None or group is world.default:
        _leave(world)
    elif world.groups.get(group.name) is not group:
        raise ValueError(f"destroy_process_group: {group!r} was destroyed before")
    else:
        del world.groups[group.name]
        group.close(group.timeout_s)
        _forget(group.store, group.size())


def make_group(world: World, plan: Plan, deadline: Deadline) -> ProcessGroup:
    """Meet the others, make the communicators, and enter the group in the world."""
    come_together(world, plan, deadline)
    made: dict[str, Communicator] = {}
    try:
        with _watched(world, plan.store and PrefixStore("made", plan.store), plan.ranks, _making(plan)) as look:
            try:
                for name in plan.config.backends():
                    made[name] = _create(name, _context(world, plan, name, look))
            except DistNetworkError:
                _look_again(look)  # a connection ends a little before it is known that its process has
                raise
            attended(lambda: _settle(world, plan, deadline), look, deadline, _making(plan))
    except BaseException as error:
        for communicator in made.values():
            with contextlib.suppress(Exception):  # the error that led here says more
                communicator.shutdown()
        with contextlib.suppress(DistError):
            attended(partial(_tell, plan, error), _see_nothing, Deadline(_TELL_S), _making(plan))
        raise
    for communicator in made.values():
        communicator.watch = world.watcher
    serving = {device: made[name] for device, name in plan.config.device_backend_map.items()}
    group = ProcessGroup(
        plan.name,
        plan.ranks,
        plan.global_rank,
        plan.config,
        serving,
        plan.timeout_s,
        plan.store,
        world.recorder.trail(plan.name, plan.description or plan.name, plan.ranks),
        plan.description,
    )
    world.groups[plan.name] = group
    return group


def _create(name: str, context: Context) -> Communicator:
    """Have a backend make a communicator; a lack of descriptors becomes an error that says so."""
    try:
        return registry.get(name).create(context)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise DistBackendError(f"group {context.name!r}: backend {name!r} cannot connect: {cause(error)}") from error


def come_together(world: World, plan: Plan, deadline: Deadline) -> None:
    """Return once all who take part in making a group, members or not, have come and agree about it."""
    participants = plan.participants or plan.ranks
    if plan.store is None or len(participants) == 1:
        return
    store, place = plan.store, PrefixStore(MEETING, plan.store)
    what = _making(plan)

    def step() -> None:
        try:
            meet(place, plan.global_rank, participants, _terms(plan), what, deadline, _tell_more(world))
        except (RendezvousError, DistTimeoutError, PeerDiedError) as error:
            with contextlib.suppress(DistError):
                stay_for(world, store, f"{MEETING}/told", to_be_told(place, participants, error))
            raise

    try:
        with _watched(world, place, participants, what) as look:
            attended(step, look, deadline, what)
    except (DistNetworkError, DistStoreError) as error:
        if plan.name == "default":
            if plan.global_rank == 0 or not hasattr(world.owned_store, "is_master"):
                raise
            raise type(error)(f"{what}: rank 0, which served the store, is gone: {error}") from error
        raise DistStoreError(
            f"{what}: the store of the job is gone, perhaps with the rank that hosted it: {error}"
        ) from error


def _look_again(look: Callable[[], None] | None) -> None:
    """Raise if a member is found to have died within a moment."""
    until = Deadline(_FOUND_S)
    while look is not None and not until.expired():
        look()
        time.sleep(_GLANCE_S)


def _making(plan: Plan) -> str:
    return "init_process_group" if plan.name == "default" else f"making group {plan.name!r}"


def _see_nothing() -> None:
    """Return: nobody is known to have died."""


def _tell(plan: Plan, error: BaseException) -> None:
    """Tell the other members that this one could not make its communicators."""
    if plan.store is not None and len(plan.ranks) > 1:
        text = f"rank {plan.global_rank}: {type(error).__name__}: {error}"
        verdict = death_verdict(error, "") if isinstance(error, PeerDiedError) else text
        PrefixStore("made", plan.store).compare_set("verdict", "", verdict)


def _settle(world: World, plan: Plan, deadline: Deadline) -> None:
    """Wait until all members have made their communicators.

    Raises:
        DistBackendError: Another member could not; its reason is in the message.
        PeerDiedError: One has died meanwhile.
        DistTimeoutError: Some have not come so far in time.
    """
    if plan.store is None or len(plan.ranks) == 1:
        return
    store = PrefixStore("made", plan.store)
    if store.add("count", 1) == len(plan.ranks):
        store.compare_set("verdict", "", _MADE)
    verdict = store.get("verdict", timeout=deadline.remaining()).decode()
    stay_for(world, plan.store, MADE_TOLD, len(plan.ranks))
    store.add("told", 1)
    if verdict != _MADE:
        raise died(verdict) or DistBackendError(f"group {plan.name!r} cannot be made: {verdict}")


def stay_for(world: World, store: Store, counter: str, count: int) -> None:
    """Remember what whoever hosts the store stays for; of what is fulfilled, one item is forgotten each time."""
    world.stay_for.append((store, counter, count))
    if len(world.stay_for) > _REMEMBERED:
        with contextlib.suppress(DistError):
            if has_reached(*world.stay_for[0]):
                del world.stay_for[0]


def _terms(plan: Plan) -> dict[str, Any]:
    """Return what all members must agree on."""
    ranks = {"world_size": len(plan.ranks)} if plan.name == "default" else {"ranks": list(plan.ranks)}
    return {
        **ranks,
        "backend": repr(plan.config),
        "rankwise version": ".".join(__version__.split(".")[:2]),
        "API version": API_VERSION,
    }


def _tell_more(world: World) -> Callable[[str, list[int]], str] | None:
    """Return what adds to a text about missing ranks what they have last done on the default group."""
    if world.watcher is None or world.default is None:
        return None
    watcher, name = world.watcher, world.default.name
    return lambda text, missing: watcher.whereabouts(text, missing, name)


@contextlib.contextmanager
def _watched(
    world: World, place: Store | None, ranks: tuple[int, ...], what: str
) -> Iterator[Callable[[], None] | None]:
    """While ranks wait for each other, write as their verdict that one has died; give what raises if that is so."""
    if place is None or world.watcher is None:
        yield None
    else:
        with world.watcher.meeting(place, ranks, what) as look:
            yield look


def _context(world: World, plan: Plan, name: str, look: Callable[[], None] | None) -> Context:
    return Context(
        name=plan.name,
        rank=plan.ranks.index(plan.global_rank),
        size=len(plan.ranks),
        global_ranks=plan.ranks,
        timeout_s=plan.timeout_s,
        devices=tuple(device for device, backend in plan.config.device_backend_map.items() if backend == name),
        device_index=plan.device_index,
        store=None if plan.store is None else PrefixStore(name, plan.store),
        options=plan.options,
        parent=None if world.default is None else world.default.communicator_of(name),
        look=look or _see_nothing,
    )


def available(config: BackendConfig) -> BackendConfig:
    """Return a config if all its backends can run here.

    Raises:
        BackendUnavailableError: One cannot; the message says why, and what would help.
    """
    for name in config.backends():
        answer = registry.availability(name)
        if not answer:
            remedy = f"; {answer.remedy}" if answer.remedy else ""
            raise BackendUnavailableError(f"backend {name!r} cannot run here: {answer.reason}{remedy}")
    return config


def _device_index(device_id: Any) -> int | None:
    if device_id is None or isinstance(device_id, int):
        return device_id
    index = device_id.partition(":")[2] if isinstance(device_id, str) else getattr(device_id, "id", "")
    return int(index) if index != "" else None


def _leave(world: World) -> None:
    """Close all groups, the default group last; whatever fails, the world is left."""
    _watch().stop(world, "the groups were destroyed")
    errors: list[DistError] = []
    for group in reversed(list(world.groups.values())):
        try:
            group.close(group.timeout_s)
        except DistError as error:
            errors.append(error)
    _release(world)
    if errors:
        raise errors[0]


def _release(world: World) -> None:
    """Close the store that `init_process_group` has opened, and forget everything."""
    if world.watcher is not None:
        world.watcher.stop()
    if world.lent_store and world.default is not None:
        _forget(world.store, world.default.size())
    if world.owned_store is not None:
        if _is_needed_by_others(world):
            _stay(world.stay_for)
        world.owned_store.close()
    world.reset()


def _forget(store: Store | None, size: int) -> None:
    """Take the keys of a group that this rank has left out of its store, if it is the last to leave."""
    if store is not None:
        with contextlib.suppress(DistError):  # whoever hosts the store is gone, and the keys with it
            leave(store.view(_SWEEP_S), size)


def _is_needed_by_others(world: World) -> bool:
    """Tell whether ranks that come late would miss this one: it serves the store, or they would begin the file anew."""
    late_for_file = isinstance(world.owned_store, FileStore) and world.default is None
    return late_for_file or getattr(world.owned_store, "is_master", False)


def _stay(stay_for: Sequence[tuple[Store, str, int]]) -> None:
    deadline = Deadline(_STAY_S)
    with contextlib.suppress(DistError):
        for store, counter, count in stay_for:
            wait_for(store, counter, count, deadline)


def _watch() -> Any:
    """Return what watches over the groups. By name: the core knows no more of it than when to call it."""
    return import_module("rankwise.watch")


def _close_at_exit() -> None:
    # Registered anew each time, so that it runs before what the program has registered earlier, and only once.
    atexit.unregister(_exit)
    atexit.register(_exit)


def _exit() -> None:
    """Leave in haste: the process ends without having destroyed its groups."""
    world = current()
    if world.default is None or world.forked:
        return
    world.stay_for.clear()
    _watch().stop(world, "the process ended")
    for group in world.groups.values():
        group.process_ends()
    with contextlib.suppress(DistError):
        _leave(world)
