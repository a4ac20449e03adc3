"""What the scheduler does for gangs: it chooses their workers, and tells the others when one is lost.

A killed worker's RPC would tell its client only once all the others had answered, and what was submitted to it as a
task would wait for a worker of that address for ever. The scheduler knows immediately.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.serialize import Serialized, deserialize

from rankwise_dask import seats
from rankwise_dask.orders import Address, Order

__all__ = ["Refused", "cancel", "enroll", "withdraw"]

_NAME = "rankwise"
#: The topic of `Client.get_events` under which gangs are told of.
_TOPIC = "rankwise"


class Refused(RuntimeError):
    """No gang was made: not all of its workers are there."""


class Gangs(SchedulerPlugin):  # type: ignore[misc]
    """The gangs of a cluster."""

    name = _NAME

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}
        self._telling: set[asyncio.Task[Any]] = set()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """Tell all ranks whose gang has lost one."""
        for order in [order for order in self.orders.values() if worker in order.places]:
            cause = f"Dask has lost its worker {worker}"
            scheduler.log_event(_TOPIC, {"action": "lost", "gang": order.token, "worker": worker})
            self._tell(_broadcast(scheduler, order, seats.report, order.places[worker], cause))

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the gangs that nobody waits for."""
        for order in [order for order in self.orders.values() if order.client == client]:
            del self.orders[order.token]
            self._tell(_broadcast(scheduler, order, seats.end))

    def _tell(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)


async def enroll(draft: Order, wanted: int | list[str] | None, *, dask_scheduler: Scheduler) -> tuple[Order, Address]:
    """Choose the workers of a gang, and have each keep a seat: all of them, or none."""
    order = draft._replace(places={address: rank for rank, address in enumerate(_choose(dask_scheduler, wanted))})
    gangs = _gangs(dask_scheduler)
    gangs.orders[order.token] = order
    replies = await _broadcast(dask_scheduler, order, seats.reserve, None)
    wrong = [reply for reply in replies.values() if not isinstance(reply, dict) or reply.get("status") != "OK"]
    if wrong or len(replies) < len(order.places):
        del gangs.orders[order.token]
        await _broadcast(dask_scheduler, order, seats.end)
        raise Refused(f"rankwise: {len(wrong)} of {len(order.places)} workers keep no seat: {_why(wrong)}")
    dask_scheduler.log_event(_TOPIC, {"action": "begins", "gang": order.token, "workers": list(order.places)})
    place = next(place for place in map(_value, replies.values()) if place is not None)
    return order, Address(*place)


async def withdraw(token: str, *, dask_scheduler: Scheduler) -> None:
    """Forget a gang, here and on its workers."""
    order = _gangs(dask_scheduler).orders.pop(token, None)
    if order is not None:
        dask_scheduler.log_event(_TOPIC, {"action": "ends", "gang": token})
        await _broadcast(dask_scheduler, order, seats.end)


async def cancel(token: str, reason: str, *, dask_scheduler: Scheduler) -> None:
    """Give all ranks of a gang up."""
    order = _gangs(dask_scheduler).orders.get(token)
    if order is not None:
        await _broadcast(dask_scheduler, order, seats.cancel, reason)


def _gangs(scheduler: Scheduler) -> Gangs:
    if _NAME not in scheduler.plugins:
        scheduler.add_plugin(Gangs(), name=_NAME)
    gangs = scheduler.plugins[_NAME]
    assert isinstance(gangs, Gangs)
    return gangs


def _choose(scheduler: Scheduler, wanted: int | list[str] | None) -> list[str]:
    """Return the addresses of the workers, in the order of ranks."""
    there = [address for address, state in scheduler.workers.items() if state.status.name in ("running", "paused")]
    if wanted is None:
        wanted = len(there)
    if isinstance(wanted, int):
        if not 0 < wanted <= len(there):
            raise Refused(f"rankwise: {wanted} workers are wanted, and the cluster has {len(there)}")
        return sorted(there, key=lambda address: _busy(scheduler, address))[:wanted]
    addresses = [str(scheduler.aliases.get(name, name)) for name in wanted]
    absent = [name for name, address in zip(wanted, addresses, strict=True) if address not in there]
    if absent or not addresses:
        raise Refused(f"rankwise: no worker {', '.join(map(str, absent))} is there; there are {', '.join(there)}")
    if len(set(addresses)) < len(addresses):
        raise ValueError(f"rankwise: a worker is named twice in {wanted}")
    return addresses


def _busy(scheduler: Scheduler, address: str) -> int:
    """Return how many gangs a worker serves already."""
    return sum(address in order.places for order in _gangs(scheduler).orders.values())


async def _broadcast(
    scheduler: Scheduler, order: Order, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any
) -> dict[str, Any]:
    """Call a function of `seats` on all workers of a gang that are there."""
    there: Iterable[str] = [address for address in order.places if address in scheduler.workers]
    whole = (order,) if function is seats.reserve else (order.token, *args)
    message = {"op": "run", "function": pickle.dumps(function), "args": pickle.dumps(whole), "wait": True}
    replies: dict[str, Any] = await scheduler.broadcast(msg=message, workers=there, on_error="return")
    return replies


def _value(reply: dict[str, Any]) -> Any:
    """Return what a worker's function has returned; a scheduler leaves it as it came."""
    result = reply["result"]
    return deserialize(result.header, result.frames) if isinstance(result, Serialized) else result.data


def _why(wrong: list[Any]) -> str:
    first = wrong[0] if wrong else "one is gone"
    if isinstance(first, dict):
        return str(first.get("text") or first.get("exception_text") or first.get("exception"))
    return repr(first)
