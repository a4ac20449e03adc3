"""Groups of actors, made by the process that holds their handles, without a process of their own beside them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.util import collective

from rankwise_ray.names import BACKEND

__all__ = ["create_group", "destroy_group"]

#: How long to wait, when a group cannot be made, until the actors have left it; those that wait in it leave later.
_LEAVE_S = 2.0


def create_group(
    actors: Sequence[Any], name: str = "default", ranks: Sequence[int] | None = None, timeout: float | None = None
) -> None:
    """Make a group of actors for `ray.util.collective`, and return once all of them have met.

    Nothing has to be called in the actors, and no process is started, as `create_collective_group` does.

    Args:
        actors: Handles of the actors, each once.
        name: The group's name, `group_name` of the operations.
        ranks: The rank of each actor; by default in the order given.
        timeout: How many seconds the meeting and, from then on, each operation may take; `RANKWISE_RAY_TIMEOUT_S`, or
            half an hour.

    Raises:
        ValueError: Ranks and actors do not go together.
        RuntimeError: An actor has such a group already, or they do not reach each other.
        ray.exceptions.RayActorError: An actor has died.
    """
    order = list(range(len(actors))) if ranks is None else list(ranks)
    if not actors or sorted(order) != list(range(len(actors))):
        raise ValueError(f"create_group: ranks must be 0 to {len(actors) - 1}, each once, not {order}")
    if len({actor._actor_id for actor in actors}) != len(actors):
        raise ValueError("create_group: each actor can have one rank only")
    place = secrets.token_hex(8)
    terms = len(actors), name, place, timeout, BACKEND
    try:
        # First they all begin, and only then does one wait: an actor may have to begin with another group in between.
        _first_error([_call(actor, _join, rank, *terms) for actor, rank in zip(actors, order, strict=True)])
        _first_error([_call(actor, _wait, name) for actor in actors])
    except BaseException:
        leaving = [_call(actor, _give_up, name, place) for actor in actors]
        ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_S)
        raise


def destroy_group(actors: Sequence[Any], name: str = "default") -> None:
    """Have actors leave a group; those that have died have left it already."""
    for call in [_call(actor, _leave, name) for actor in actors]:
        with suppress(ray.exceptions.RayActorError):
            ray.get(call)


def _call(actor: Any, function: Callable[..., Any], *args: Any) -> Any:
    return actor.__ray_call__.remote(function, *args)


def _first_error(calls: Sequence[Any]) -> None:
    """Return when all calls have ended well; raise as soon as one has not."""
    pending = list(calls)
    while pending:
        done, pending = ray.wait(pending, num_returns=1)
        ray.get(done)


def _join(_: Any, rank: int, size: int, name: str, place: str, timeout: float | None, backend: str) -> None:
    from rankwise_ray import group as groups

    groups.places[name] = place, timeout
    try:
        collective.init_collective_group(size, rank, backend, name)
    finally:
        groups.places.pop(name, None)


def _wait(_: Any, name: str) -> None:
    group: Any = collective.get_group_handle(name)
    group.wait()


def _leave(_: Any, name: str) -> None:
    if collective.is_group_initialized(name):
        collective.destroy_collective_group(name)


def _give_up(_: Any, name: str, place: str) -> None:
    """Leave a group that cannot be made, if this actor has come so far, and not one that was there before."""
    if collective.is_group_initialized(name):
        group: Any = collective.get_group_handle(name)
        if group.place == place:
            collective.destroy_collective_group(name)
