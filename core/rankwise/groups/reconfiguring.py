"""Reconfiguring the default group: any processes that hold each other's handles become its members, as in torch.

A process that begins with `enable_reconfigure` has a default group without members, and a handle that tells it from
all others. `reconfigure` makes the group one of the processes whose handles are given. They first gather, with nothing
given up; then each leaves the configuration before, and they make a world of their own as any ranks do. All attempts
are made in one store, each in a place that is called as its uuid.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any

from rankwise.basics.arguments import require, shown
from rankwise.basics.attending import attended
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.interrupts import held
from rankwise.basics.tracebacks import shortened
from rankwise.basics.work import FutureWork, Work
from rankwise.errors import DistError, ForkedProcessError, PeerDiedError, RendezvousError
from rankwise.groups.handshake import death_verdict, is_gone, meet, verdict_of
from rankwise.groups.lifecycle import begin, leave_world, not_made
from rankwise.groups.places import Place, stand
from rankwise.groups.process_group import ProcessGroup
from rankwise.groups.world import World, resolve
from rankwise.store import PrefixStore, Store

#: How long the operations of a configuration that is left may take to complete.
_DRAIN_S = 5.0

#: What tells of processes that are known to be gone: for their handles, how each ended.
Lost = Callable[[], Mapping[str, str]]


def supports_reconfigure(group: ProcessGroup | None = None) -> bool:
    """Return whether a group may be reconfigured: it was made with `enable_reconfigure=True`.

    Args:
        group: The group; None is the default group.

    Returns:
        Whether `reconfigure` takes it.

    Raises:
        ValueError: There is no default group.

    Examples:
        >>> dist.init_process_group("gloo", enable_reconfigure=True)
        >>> dist.supports_reconfigure()
        True
        >>> dist.destroy_process_group()
    """
    with shortened:
        found = resolve(group, "supports_reconfigure")
        return found is not None and found.world.place is not None and found is found.world.default


def get_reconfigure_handle(group: ProcessGroup | None = None) -> str:
    """Return the handle of this process, which tells it from all others that may become members.

    How handles travel is the program's affair; the store of the job is one way.

    Args:
        group: The group; None is the default group.

    Returns:
        The handle, the same for as long as the process has the group.

    Raises:
        ValueError: The group cannot be reconfigured, or there is no default group.

    Examples:
        >>> dist.init_process_group("gloo", enable_reconfigure=True)
        >>> mine = dist.get_reconfigure_handle()
        >>> dist.destroy_process_group()
    """
    with shortened:
        return _place(resolve(group, "get_reconfigure_handle"), "get_reconfigure_handle").handle


def reconfigure(
    uuid: str,
    handles: Sequence[str] | AbstractSet[str],
    group: ProcessGroup | None = None,
    timeout: Timeout | None = None,
    *,
    lost: Lost | None = None,
) -> Work:
    """Make a group one of the processes whose handles are given, whatever its members were before.

    All these processes call this with the same uuid and the same handles, and no others do. So a group begins, shrinks,
    grows, merges with another and splits. Subgroups of it end, and the group's own records begin again.

    Args:
        uuid: A name for this attempt; each may be used once, also if the attempt failed.
        handles: The handles of the members, this process's among them. A list gives each its rank by its position; a
            set leaves the ranks to be agreed.
        group: The group; None is the default group.
        timeout: How long the attempt may take; None for the group's.
        lost: Asked several times a second while members are waited for: returns the handles of those that are known to
            be gone, each with its cause. What this process can see by itself, such as the end of a process on its
            host, need not be told.

    Returns:
        A work that has ended. If the members did not all come, or do not agree, its `wait` raises why and the group is
        what it was before; if one failed later, the group has no members. In both cases another attempt may be made.

    Raises:
        TypeError: The handles are no strings.
        ValueError: The group cannot be reconfigured, or the handles are not those of processes of this job.

    Examples:
        >>> dist.init_process_group("gloo", enable_reconfigure=True)
        >>> dist.reconfigure("alone", [dist.get_reconfigure_handle()]).wait()
        True
        >>> dist.get_rank(), dist.get_world_size()
        (0, 1)
        >>> dist.destroy_process_group()
    """
    made: list[ProcessGroup] = []
    try:
        found = resolve(group, "reconfigure")
        place = _place(found, "reconfigure")
        assert found is not None
        require(uuid=uuid, handles=handles, timeout=timeout)
        deadline = Deadline(found.timeout_s if timeout is None else seconds(timeout))
        listed = _ordered(place, uuid, handles)
        work = FutureWork()
        try:
            _gather(place, uuid, listed, deadline, lost)
            with held:
                _move(found, place, uuid, listed, deadline)
                made.append(found)
        except DistError as error:
            work.fail(error)
        else:
            work.succeed()
        return work
    except BaseException as error:
        not_made("reconfigure", made, error)
        raise


# ---------------------------------------------------------------------- handles


def _card(handle: str) -> dict[str, Any]:
    """Return what a handle says; nothing if it is none."""
    with contextlib.suppress(ValueError):
        card = json.loads(handle)
        if isinstance(card, dict) and {"store", "id", "rank", "host", "pid", "space", "started", "jobs"} <= card.keys():
            return card
    return {}


def _runtime_ranks(listed: list[str]) -> dict[str, tuple[int, ...]]:
    """Return for each backend with a runtime of its own what the members are called there."""
    jobs = [_card(handle)["jobs"] for handle in listed]
    return {name: tuple(job[name][1] for job in jobs) for name in jobs[0]}


def _ordered(place: Place, uuid: str, handles: Sequence[str] | AbstractSet[str]) -> list[str]:
    """Return the handles of the members in the order of their ranks."""
    listed = list(handles)
    cards = [_card(handle) for handle in listed]
    if not uuid:
        raise ValueError("reconfigure: uuid is empty, but each attempt needs a name of its own")
    if not all(cards):
        wrong = listed[cards.index({})]
        raise ValueError(f"reconfigure: {shown(wrong)} is no handle; get_reconfigure_handle returns one")
    if len(set(listed)) != len(listed):
        raise ValueError("reconfigure: handles holds a process twice")
    if place.handle not in listed:
        raise ValueError("reconfigure: the handle of this process is not among the handles; only members call")
    for name in {name for card in cards for name in card["jobs"]}:
        if len({card["jobs"].get(name, ("", 0))[0] for card in cards}) > 1:
            raise ValueError(f"reconfigure: the handles are of processes of several jobs of {name}, which cannot meet")
    if len({card["store"] for card in cards}) > 1:
        raise ValueError("reconfigure: the handles are of processes that met in different stores")
    if isinstance(handles, AbstractSet):  # those of a host are neighbours
        return sorted(listed, key=lambda handle: (cards[listed.index(handle)]["host"], handle))
    return listed


# ---------------------------------------------------------------------- an attempt


def _gather(place: Place, uuid: str, listed: list[str], deadline: Deadline, lost: Lost | None) -> None:
    """Return once all members have come; nothing has been given up by then.

    Raises:
        RendezvousError: The uuid has been used, or the members do not agree.
        DistTimeoutError: Not all have come.
        PeerDiedError: One has died.
    """
    what, members = f"reconfigure {uuid!r}", _digest(listed)
    if uuid in place.used:
        raise RendezvousError(f"{what}: this uuid was already used")
    meeting = PrefixStore(f"{uuid}/gather", place.store)
    if place.store.compare_set(f"used/{uuid}", "", members).decode() != members:
        error = RendezvousError(f"{what}: this uuid was already used, for other handles or in another order")
        meeting.compare_set("verdict", "", verdict_of(error))
        raise error
    place.used.append(uuid)
    if len(listed) == 1:
        return
    ranks = range(len(listed))
    step = partial(meet, meeting, listed.index(place.handle), ranks, {"members": members}, what, deadline)
    attended(step, partial(_tell_of_lost, meeting, what, listed, place.handle, lost), deadline, what)


def _tell_of_lost(meeting: Store, what: str, listed: list[str], mine: str, lost: Lost | None) -> None:
    """Have all who gather raise that a member is gone, if one is."""
    told = {} if lost is None else lost()
    for position, handle in enumerate(listed):
        card = _card(handle)
        cause = told.get(handle) or ("its process has ended" if handle != mine and is_gone(card) else "")
        if cause:
            meeting.compare_set("verdict", "", death_verdict(PeerDiedError(position, card["host"], cause), what))
            return


def _move(group: ProcessGroup, place: Place, uuid: str, listed: list[str], deadline: Deadline) -> None:
    """Leave the configuration before, and make the group of its new members; without any if that fails."""
    world, what = group.world, f"reconfigure {uuid!r}"
    plan = replace(
        place.plan,
        ranks=tuple(range(len(listed))),
        global_rank=listed.index(place.handle),
        store=PrefixStore(f"{uuid}/world", place.store),
        timeout_s=group.timeout_s,
        terms={"members": _digest(listed)},
        purpose=what,
    )
    try:
        _leave(world, place, deadline)
        world.lent_store = True  # it outlives this configuration, whoever serves it
        world.runtime_ranks = _runtime_ranks(listed)
        place.current = ""
        group.become(begin(world, lambda: plan, deadline))
        place.current = uuid
        _sweep(place, is_first=plan.global_rank == 0)
    except BaseException as error:
        group.lacks_members(f"has no members since {what} failed ({type(error).__name__}: {error}); call it again")
        raise
    finally:
        world.place, world.owned_store = place, place.owned
        stand(world, group)


def _leave(world: World, place: Place, deadline: Deadline) -> None:
    """Leave the configuration that is there, but for the store: what fails there is over in any case."""
    world.place = world.owned_store = None
    world.stay_for.clear()
    for group in world.groups.values():
        group.configuration = place.current
        group.parting = "ended when the default group was reconfigured; make it again"
    with contextlib.suppress(DistError):
        leave_world(world, "the default group is being reconfigured", min(_DRAIN_S, deadline.remaining()))


def _sweep(place: Place, is_first: bool) -> None:
    """Take what earlier attempts have left out of the store; the last but this one may still be looked at."""
    past = place.used[place.swept : -2] if is_first else []
    place.swept += len(past)
    for uuid in past:
        with contextlib.suppress(DistError):
            place.store.delete_prefix(f"{uuid}/")


def _place(group: ProcessGroup | None, op: str) -> Place:
    if group is not None and group.world.forked:
        raise ForkedProcessError(f"{op}: this process was forked from the one that made {group!r}")
    if group is None or group.world.place is None or group is not group.world.default:
        raise ValueError(f"{op}: the group was not made by init_process_group(enable_reconfigure=True)")
    place: Place = group.world.place
    return place


def _digest(handles: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(handles).encode()).hexdigest()[:32]
