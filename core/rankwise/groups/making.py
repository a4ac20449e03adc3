"""How a group is made: all members meet, make their communicators, and learn whether every one of them could."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

from rankwise.backends.capability import ANY_HOSTS, require_group
from rankwise.backends.communicator import Communicator
from rankwise.backends.contract import Context, see_nothing
from rankwise.backends.declaration import API_VERSION
from rankwise.backends.registry import registry
from rankwise.basics import interrupts as interrupts
from rankwise.basics.arguments import shown
from rankwise.basics.attending import attended
from rankwise.basics.deadline import Deadline
from rankwise.basics.debug import debug_log
from rankwise.basics.systems import cause
from rankwise.basics.tracebacks import anew
from rankwise.basics.version import __version__, series
from rankwise.errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    DistTimeoutError,
    GroupAbortedError,
    PeerDiedError,
)
from rankwise.groups import observers, refusals
from rankwise.groups.handshake import (
    MEETING,
    SAID,
    call_off,
    has_reached,
    hosts_of,
    interrupted,
    meet,
    refuse,
    to_be_told,
    told_by,
)
from rankwise.groups.process_group import Plan, ProcessGroup
from rankwise.groups.world import World
from rankwise.store import PrefixStore, Store
from rankwise.store.base import ArrivalPoint
from rankwise.store.patience import EXCHANGE, late
from rankwise.store.prefix import innermost
from rankwise.store.primitives import NO_KEYS

#: From how many reasons to stay on it is seen whether the oldest still holds.
_REMEMBERED = 32

#: How long telling the others that a group cannot be made may take, where the store may be out of reach.
_TELL_S = 1.0
#: How soon it is known that a process has ended whose connection has, and how often to look.
_FOUND_S, _GLANCE_S = 0.3, 0.01


def make_group(world: World, plan: Plan, deadline: Deadline) -> ProcessGroup:
    """Meet the others, make the communicators, and enter the group in the world."""
    for name in plan.config.backends():
        registry.load(name)
    come_together(world, plan, deadline)
    made: dict[str, Communicator] = {}
    counted: list[bool] = []
    try:
        is_told = world.watcher is not None and world.watcher.tells_verdicts
        heed = refusals.Heed(None if is_told else plan.store)
        place = plan.store and PrefixStore("made", plan.store)
        with _watched(world, place, plan.ranks, _making(plan), heed.hear if is_told else None) as look:
            heed.look = look or see_nothing
            try:
                for name in plan.config.backends():
                    made[name] = _create(name, _context(world, plan, name, heed, deadline))
            except DistNetworkError:
                _look_again(look)  # a connection ends a little before it is known that its process has
                raise
            if plan.store is not None and len(plan.ranks) > 1:
                counted.append(True)
                step = partial(_settle, plan, world.default is None, deadline)
                attended(step, look, deadline, _making(plan), partial(_served, world, plan))
        interrupts.heed()
        heed.end()
    except BaseException as error:
        for communicator in made.values():
            with contextlib.suppress(Exception):  # the error that led here says more
                if counted or interrupts.is_a_handlers(error):  # the others may all have made theirs, and use them
                    communicator.watch = world.watcher
                    communicator.give_up_and_tell(_given_up(plan, error))
                communicator.shutdown()
        _tell(world, plan, error, not counted)
        raise
    return _enter(world, plan, made)


def _given_up(plan: Plan, error: BaseException) -> GroupAbortedError:
    """Return what the others are told in the first call of a group that they may have made, and this rank has not."""
    what = _making(plan)
    if interrupts.is_a_handlers(error):
        return interrupted(what, plan.global_rank, error)
    return GroupAbortedError(f"{what} has failed on rank {plan.global_rank}: {error}")


def _enter(world: World, plan: Plan, made: dict[str, Communicator]) -> ProcessGroup:
    """Enter a group that is made in the world."""
    for communicator in made.values():
        communicator.watch = world.watcher
    serving = {device: made[name] for device, name in plan.config.device_backend_map.items()}
    group = ProcessGroup(plan, serving, world)
    world.groups[plan.name] = group
    if world.watcher is not None:
        world.watcher.made(plan.name)
    debug_log(
        f"rank {plan.global_rank}: group {group.group_desc!r} of ranks {list(plan.ranks)}: {plan.config.listed()}"
    )
    return group


def _create(name: str, context: Context) -> Communicator:
    """Have a backend make a communicator; what the system says becomes an error that names group, backend and cause."""
    try:
        return registry.communicator(name, context)
    except DistError:
        raise
    except (OSError, RuntimeError) as error:
        why = cause(error)
        if isinstance(error, RuntimeError) and why == str(error):
            raise
        rank = context.global_ranks[context.rank]
        where = f"group {context.name!r} on rank {rank}: backend {name!r}, from {registry.provider(name)},"
        if isinstance(error, TimeoutError):
            raise DistTimeoutError(f"{where} timed out as it waited for other ranks: {why}") from error
        raise DistBackendError(f"{where} cannot connect: {why}") from error


def come_together(world: World, plan: Plan, deadline: Deadline) -> None:
    """Return once all who take part in making a group, members or not, have come and agree about it.

    Raises:
        UnsupportedOperationError: A backend makes no groups of this size, or on so many hosts; as all have one table,
            on all ranks.
        BackendUnavailableError: This rank, or another, cannot have the backend that it was asked for.
    """
    hosts = 1 if len(plan.participants) == 1 else None
    if plan.config.refusal is not None:
        _refuse(world, plan, plan.config.refusal)
    elif plan.store is not None and len(plan.participants) > 1:
        hosts = _meet(world, plan, plan.store, deadline)
    for name in plan.config.backends():
        devices = [device for device, backend in plan.config.device_backend_map.items() if backend == name]
        require_group(registry.get(name).capabilities, len(plan.ranks), hosts, devices, registry.others)


def _meet(world: World, plan: Plan, store: Store, deadline: Deadline) -> int | None:
    """Meet the others; return on how many hosts the members are, if a backend minds."""
    place = PrefixStore(MEETING, store)
    what, life, participants = _making(plan), world.store, plan.participants
    minds = any(registry.get(name).capabilities.hosts != ANY_HOSTS for name in plan.config.backends())

    def step() -> int | None:
        watcher = world.watcher if world.default is None else None
        try:
            seats = meet(
                *(place, plan.global_rank, participants, _terms(plan), what, deadline, _tell_more(world)),
                read=minds or watcher is not None,
            )
            if watcher is not None:
                watcher.everyone_is_here(seats)
            if not minds:
                return None
            return hosts_of(seat for rank, seat in zip(participants, seats, strict=True) if rank in plan.ranks)
        except SAID as error:
            with contextlib.suppress(DistError):
                if world.store is life:  # else this thread has been left behind
                    stay_for(world, store, f"{MEETING}/told", to_be_told(place, participants, error))
            raise

    try:
        with _watched(world, place, participants, what) as look:
            return attended(step, partial(_look, world, look), deadline, what, partial(_served, world, plan))
    except (DistNetworkError, DistStoreError) as error:
        if world.default is None:
            if world.host in (None, plan.global_rank):
                raise
            raise type(error)(f"{what}: rank 0, which served the store, is gone: {error}") from error
        gone = f"{what}: the store of the job is gone, perhaps with the rank that hosted it: {error}"
        raise DistStoreError(gone) from error
    except BaseException as error:
        if interrupts.is_a_handlers(error) or (world.home or world).stopped is not None:
            _call_off(world, plan, store, error)
        raise


def _refuse(world: World, plan: Plan, error: DistError) -> NoReturn:
    """Tell the others that this rank cannot take part, and raise why."""
    if (store := plan.store) is not None and len(plan.participants) > 1:
        with contextlib.suppress(DistError):
            step = partial(refuse, PrefixStore(MEETING, store), _making(plan), plan.global_rank, error)
            attended(step, None, Deadline(_TELL_S), _making(plan))
            stay_for(world, store, f"{MEETING}/told", len(plan.participants))
    raise anew(error)


def _look(world: World, look: Callable[[], None] | None) -> None:
    """Raise if the others are waited for in vain: this rank has been stopped, or one of them has died."""
    stopped = (world.home or world).stopped
    if stopped is not None:
        raise anew(stopped)
    if look is not None:
        look()


def _call_off(world: World, plan: Plan, store: Store, error: BaseException) -> None:
    """Tell the others that this rank was interrupted and does not come; the rank stays for those that have come."""
    said = interrupted(_making(plan), plan.global_rank, error)
    with contextlib.suppress(DistError):
        step = partial(call_off, PrefixStore(MEETING, store), said)
        told = attended(step, None, Deadline(_TELL_S), _making(plan))
        if told is not None:
            stay_for(world, store, f"{MEETING}/told", told)
        elif plan.global_rank in plan.ranks:  # they make the group now, and wait for this rank there
            _tell(world, plan, error, True)


def _look_again(look: Callable[[], None] | None) -> None:
    """Raise if a member is found to have died within a moment."""
    until = Deadline(_FOUND_S)
    while look is not None and not until.expired():
        look()
        time.sleep(_GLANCE_S)


def _making(plan: Plan) -> str:
    return plan.purpose or f"making group {plan.name!r}"


def _served(world: World, plan: Plan) -> str:
    """Name the store, and the rank that is missing if it does not answer."""
    whose = "" if world.host in (None, plan.global_rank) else "rank 0, which serves "
    return f"{whose}the store of the job, {innermost(plan.store)!r},"


def _tell(world: World, plan: Plan, error: BaseException, count: bool) -> None:
    """Tell the other members that this one could not make its communicators; `count` it where it was not before.

    Raises:
        DistBackendError: Another member could not before, and this one's error only tells that it is gone.
    """
    store = plan.store
    if store is None or len(plan.ranks) == 1:
        return
    first = ""
    with contextlib.suppress(DistError):
        step = partial(refusals.refuse, store, plan.name, plan.global_rank, plan.config.backends(), error, count)
        first = attended(step, see_nothing, Deadline(_TELL_S), _making(plan))
        # A dead rank does not come to hear of it.
        stay_for(world, store, refusals.MADE, len(plan.ranks) - isinstance(error, PeerDiedError))
    own = refusals.somebodys_own(first)
    if own is not None and isinstance(error, refusals.CONSEQUENCES):
        raise own from error


def _settle(plan: Plan, is_first: bool, deadline: Deadline) -> None:
    """Wait until all members have made their communicators; the store's host has answered all when it knows that.

    Raises:
        DistBackendError: Another member could not; its reason is in the message.
        PeerDiedError: One has died meanwhile.
        DistTimeoutError: Some have not come so far in time.
    """
    assert plan.store is not None
    place = ArrivalPoint(refusals.MADE, refusals.VERDICT, len(plan.ranks), _forgotten(plan, is_first))
    try:
        said, _ = plan.store._arrive({_made(plan.global_rank): b""}, place, NO_KEYS, deadline.remaining())
    except DistTimeoutError as error:
        raise late(plan.store, [_made(rank) for rank in plan.ranks], plan.ranks, deadline) from error
    told = told_by(said.decode())
    if told is not None:
        raise DistBackendError(str(told)) if isinstance(told, DistNetworkError) else told


def _made(rank: int) -> str:
    """Return the key that a member sets once it has made its communicators."""
    return f"{refusals.MADE}/{rank}"


def _forgotten(plan: Plan, is_first: bool) -> tuple[str, ...]:
    """Return how the keys begin that no rank needs once all members have made the group."""
    exchanged = tuple(f"{backend}/{EXCHANGE}" for backend in plan.config.backends())
    # By the first group of a world a later life of the job finds out that this one is over; and ranks that take part
    # without being members may still have to read that all have come.
    if is_first or plan.participants != plan.ranks:
        return exchanged
    return f"{MEETING}/", refusals.MADE, *exchanged


def stay_for(world: World, store: Store, counter: str, count: int) -> None:
    """Remember what the rank that hosts the store stays for; of what is fulfilled, one item is forgotten each time."""
    world.stay_for.append((store, counter, count))
    if len(world.stay_for) > _REMEMBERED:
        with contextlib.suppress(DistError):
            if has_reached(*world.stay_for[0]):
                del world.stay_for[0]


def _terms(plan: Plan) -> dict[str, Any]:
    """Return what all members must agree on."""
    return {
        **plan.terms,
        "backend": str(plan.config),
        "rankwise version": series(__version__),
        "API version": API_VERSION,
        **{f"backend {name!r}": registry.terms(name) for name in plan.config.backends()},
        "watched by": observers.names(),
    }


def _tell_more(world: World) -> Callable[[str, list[int]], str] | None:
    """Return what adds to a text about missing ranks what they have last done on the default group."""
    if world.watcher is None or world.default is None:
        return None
    watcher, name = world.watcher, world.default.name
    return lambda text, missing: watcher.whereabouts(text, missing, name)


@contextlib.contextmanager
def _watched(
    world: World, place: Store | None, ranks: tuple[int, ...], what: str, hear: Callable[[bytes], None] | None = None
) -> Iterator[Callable[[], None] | None]:
    """While ranks wait for each other, write as their verdict that one has died; give what raises if that is so.

    Whatever else somebody says there is told to `hear`.
    """
    if place is None or world.watcher is None:
        yield None
    else:
        with world.watcher.meeting(place, ranks, what, hear) as look:
            yield look


def _options(plan: Plan, name: str) -> Any:
    """Return what the program has given a backend; where there are several, it has given a mapping by their names.

    Raises:
        TypeError: There are several, and it has not.
    """
    names = plan.config.backends()
    if len(names) == 1 or plan.options is None:
        return plan.options
    if not isinstance(plan.options, Mapping) or not set(plan.options) <= set(names):
        what = f"a mapping by their names, {', '.join(names)}"
        raise TypeError(f"pg_options of a group of several backends must be {what}, not {shown(plan.options)}")
    return plan.options.get(name)


def _context(world: World, plan: Plan, name: str, look: Callable[[], None], deadline: Deadline) -> Context:
    return Context(
        name=plan.name,
        rank=plan.ranks.index(plan.global_rank),
        size=len(plan.ranks),
        global_ranks=plan.ranks,
        timeout_s=plan.timeout_s,
        devices=tuple(device for device, backend in plan.config.device_backend_map.items() if backend == name),
        device_index=plan.device_index,
        store=None if plan.store is None else PrefixStore(name, plan.store),
        options=_options(plan, name),
        secret=world.secret,
        parent=None if world.default is None else world.default.communicator_of(name),
        runtime_ranks=world.in_runtime(plan.ranks, name),
        look=look,
        deadline=deadline,
    )
