"""Groups of actors, made by the process that holds their handles, without a process of their own beside them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.util import collective

import rankwise as dist
from rankwise.backends import Deadline, Timeout, seconds, whole_number
from rankwise_ray import judging
from rankwise_ray.group import default_timeout_s
from rankwise_ray.names import BACKEND

#: How long to wait, when a group cannot be made, until the actors have left it; and how much longer than the actors,
#: which know better who has not come, to wait for them.
_LEAVE_S = 2.0
#: For how long an actor waits for the others before it is free again: it must hear in time that one of them has died.
_WAIT_S = 0.5


def create_group(
    actors: Sequence[Any], name: str = "default", ranks: Sequence[int] | None = None, timeout: Timeout | None = None
) -> None:
    """Make a group of actors for `ray.util.collective`, and return once all of them have met.

    Nothing has to be called in the actors, and no process is started, as `create_collective_group` does.

    Args:
        actors: Handles of the actors, each once.
        name: The group's name, `group_name` of the operations.
        ranks: The rank of each actor; by default in the order given.
        timeout: How many seconds the meeting and, from then on, each operation may take; `RANKWISE_RAY_TIMEOUT_S`, or
            half an hour. An actor that is busy with another call may begin that much later.

    Raises:
        DistTimeoutError: An actor was busy for too long.
        TypeError: An argument is not what it must be.
        ValueError: Ranks and actors do not go together, or this is one of the actors, which cannot wait for itself.
        RuntimeError: An actor has such a group already, or they do not reach each other.
        ray.exceptions.RayActorError: An actor has died.
    """
    actors, timeout_s = _actors("create_group", actors), _limit_s("create_group", timeout)
    order = _order(ranks, len(actors))
    judging.string("create_group: name", name)
    place = secrets.token_hex(8)
    terms = len(actors), name, place, timeout_s, BACKEND
    what = f"create_group {name!r}"
    try:
        # First they all begin, and only then does one wait: an actor may have to begin with another group in between.
        joining = [_call(actor, _join, rank, *terms) for actor, rank in zip(actors, order, strict=True)]
        limits_s = _results(joining, Deadline(_or_default(timeout_s)), what)
        waiting, deadline = list(actors), Deadline(max(limits_s) + _LEAVE_S)
        while waiting:
            met = _results([_call(actor, _wait, name) for actor in waiting], deadline, what)
            waiting = [actor for actor, there in zip(waiting, met, strict=True) if not there]
    except BaseException:
        leaving = [_call(actor, _give_up, name, place) for actor in actors]
        ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_S)
        raise


def destroy_group(actors: Sequence[Any], name: str = "default", timeout: Timeout | None = None) -> None:
    """Have actors leave a group; those that have died have left it already.

    Args:
        actors: Handles of the actors.
        name: The group's name.
        timeout: How many seconds to wait for actors that are busy with another call; by default as `create_group`.

    Raises:
        DistTimeoutError: An actor was busy for too long. It leaves once it comes to it.
    """
    actors, timeout_s = _actors("destroy_group", actors), _limit_s("destroy_group", timeout)
    judging.string("destroy_group: name", name)
    leaving = [_call(actor, _leave, name) for actor in actors]
    _results(leaving, Deadline(_or_default(timeout_s)), f"destroy_group {name!r}", ray.exceptions.RayActorError)


def _limit_s(what: str, timeout: Timeout | None) -> float | None:
    return None if timeout is None else seconds(timeout, f"{what}: timeout")


def _or_default(timeout_s: float | None) -> float:
    return default_timeout_s() if timeout_s is None else timeout_s


def _actors(what: str, actors: Any) -> list[Any]:
    """Return handles of actors that can all be called from here, each once."""
    found = judging.sequence(f"{what}: actors", actors, "handles of actors")
    if not found:
        raise ValueError(f"{what}: there are no actors")
    for actor in found:
        if not isinstance(actor, ray.actor.ActorHandle):
            raise TypeError(f"{what}: actors must be handles of actors, not {actor!r:.100}")
    names = [actor._actor_id.hex() for actor in found]
    if len(set(names)) != len(names):
        raise ValueError(f"{what}: each actor can have one rank only")
    own = ray.get_runtime_context().get_actor_id()
    if own in names and ray._private.worker.global_worker.core_worker.current_actor_max_concurrency() == 1:
        raise ValueError(
            f"{what}: called in the actor with rank {names.index(own)}, which cannot wait for itself; call it in the "
            "driver or another actor, or ray.util.collective.init_collective_group in each"
        )
    return found


def _order(ranks: Any, size: int) -> list[int]:
    """Return the rank of each actor."""
    if ranks is None:
        return list(range(size))
    order = [whole_number(rank, "create_group: a rank") for rank in judging.sequence("ranks", ranks, "ranks")]
    if sorted(order) != list(range(size)):
        raise ValueError(f"create_group: ranks must be 0 to {size - 1}, each once, for {size} actors")
    return order


def _call(actor: Any, function: Callable[..., Any], *args: Any) -> Any:
    return actor.__ray_call__.remote(function, *args)


def _results(calls: Sequence[Any], deadline: Deadline, what: str, *passed_over: type[Exception]) -> list[Any]:
    """Return what calls of one actor each have returned; raise as soon as one fails, unless that is passed over."""
    found, pending = dict.fromkeys(calls), list(calls)
    while pending:
        done, pending = ray.wait(pending, num_returns=1, timeout=deadline.remaining())
        if not done:
            late = ", ".join(str(calls.index(call)) for call in pending)
            raise dist.DistTimeoutError(
                f"{what}: of {len(calls)} actors, by their places in the list, {late} did not get to it within "
                f"{deadline.timeout_s:g} s; is another call still running there?"
            )
        with suppress(*passed_over):
            found[done[0]] = ray.get(done[0])
    return list(found.values())


def _join(_: Any, rank: int, size: int, name: str, place: str, timeout: float | None, backend: str) -> float:
    """Begin with a group; return how long that may take."""
    from rankwise_ray import group as groups

    groups.places[name] = place, timeout
    try:
        collective.init_collective_group(size, rank, backend, name)
    finally:
        groups.places.pop(name, None)
    group: Any = collective.get_group_handle(name)
    return float(group.timeout_s)


def _wait(_: Any, name: str) -> bool:
    """Wait for the others for a moment; return whether they are there."""
    group: Any = collective.get_group_handle(name)
    return group.wait(_WAIT_S) is not None


def _leave(_: Any, name: str) -> None:
    if collective.is_group_initialized(name):
        collective.destroy_collective_group(name)


def _give_up(_: Any, name: str, place: str) -> None:
    """Leave a group that cannot be made, if this actor has come so far, and not one that was there before."""
    if collective.is_group_initialized(name):
        group: Any = collective.get_group_handle(name)
        if group.place == place:
            collective.destroy_collective_group(name)
