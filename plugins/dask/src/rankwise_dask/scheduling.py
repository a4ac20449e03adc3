"""What the scheduler does for gangs: it chooses their workers, and tells the others when one is lost.

A killed worker's RPC would tell its client only once all the others had answered, and what was submitted to it as a
task would wait for a worker of that address for ever. The scheduler knows immediately. As ranks are no tasks, it is
told here, too, that their workers are busy, and how many are waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Mapping
from functools import wraps
from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from rankwise_dask import seats
from rankwise_dask.orders import Address, Order, Outcome, Work
from rankwise_dask.replies import Function, Replies, returned

_NAME = "rankwise"
#: The topic of `Client.get_events` under which gangs are told of.
_TOPIC = "rankwise"
#: How long ranks are waited for when one has failed, or they are to end: one that calls nothing of rankwise's cannot be
#: stopped, nor does a worker answer whose process is.
LAST_WORDS_S = 5.0
#: How often to look whether workers have come, and to tell Dask that it is not idle.
_LOOK_S = 0.1


class Refused(RuntimeError):
    """No gang was made: not all of its workers keep a seat."""


class Absent(Refused):
    """Not all of its workers are there."""


class Gangs(SchedulerPlugin):  # type: ignore[misc]
    """The gangs of a cluster.

    Args:
        scheduler: The scheduler, which learns to ask for the workers that gangs wait for.
    """

    name = _NAME

    def __init__(self, scheduler: Scheduler) -> None:
        self.orders: dict[str, Order] = {}
        #: Who waits for workers: the gang, and how many it wants.
        self.waiting: dict[str, tuple[Order, int]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._scheduler = scheduler
        own = scheduler.adaptive_target

        @wraps(own)
        def target(*args: Any, **options: Any) -> int:
            return max(int(own(*args, **options)), *(count for _, count in self.waiting.values()), 0)

        scheduler.adaptive_target = scheduler.handlers["adaptive_target"] = target

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """Tell all ranks whose gang has lost one."""
        for order in [order for order in self.orders.values() if worker in order.places]:
            self.tell_of_loss(order, worker, f"Dask has lost its worker {worker}")

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the gangs that nobody waits for."""
        for token in [token for token, (order, _) in self.waiting.items() if order.client == client]:
            del self.waiting[token]
        for order in [order for order in self.orders.values() if order.client == client]:
            del self.orders[order.token]
            self._begin(_broadcast(scheduler, order, seats.end))

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[Any]) -> list[Any]:
        """Return those workers that have no rank."""
        return [worker for worker in workers if not self.ranks_of(worker.address)]

    def ranks_of(self, address: str) -> int:
        """Return how many ranks a worker has."""
        return sum(address in order.places for order in self.orders.values())

    def enter(self, order: Order) -> None:
        """Enter a gang; Dask is not idle from now on, as long as there is one."""
        if not self.orders:
            self._begin(self._keep_awake())
        self.orders[order.token] = order

    def tell_of_loss(self, order: Order, worker: str, cause: str) -> None:
        """Tell all ranks of a gang that a worker is lost."""
        self._scheduler.log_event(_TOPIC, {"action": "lost", "gang": order.token, "worker": worker})
        self._begin(_broadcast(self._scheduler, order, seats.report, order.places[worker], cause))

    def let_go(self, token: str, silent: Collection[str]) -> None:
        """End what workers have of a gang that need not answer."""
        order = self.orders.get(token)
        if order is not None and silent:
            kept = {address: rank for address, rank in order.places.items() if address not in silent}
            self.orders[token] = order._replace(places=kept)
            gone = order._replace(places=dict.fromkeys(silent, -1))
            self._begin(_broadcast(self._scheduler, gone, seats.end))

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_awake(self) -> None:
        while self.orders:
            self._scheduler.idle_since = None
            await asyncio.sleep(_LOOK_S)


async def enroll(
    draft: Order, wanted: int | list[Any] | None, patience_s: float, *, dask_scheduler: Scheduler
) -> tuple[Order, Address]:
    """Choose the workers of a gang, and have each keep a seat: all of them, or none.

    Workers that are not there are waited for, and an adaptive cluster is asked for them.
    """
    gangs, until = _gangs(dask_scheduler), time.monotonic() + patience_s
    gangs.waiting[draft.token] = draft, len(wanted) if isinstance(wanted, list) else wanted or 1
    try:
        while True:
            try:
                return await _seated(dask_scheduler, draft, wanted)
            except Absent:
                if time.monotonic() >= until or draft.token not in gangs.waiting:
                    raise
            await asyncio.sleep(_LOOK_S)
    finally:
        gangs.waiting.pop(draft.token, None)


async def _seated(scheduler: Scheduler, draft: Order, wanted: int | list[Any] | None) -> tuple[Order, Address]:
    """Have workers that are there keep a seat each."""
    order = draft._replace(places={address: rank for rank, address in enumerate(_choose(scheduler, wanted))})
    gangs = _gangs(scheduler)
    gangs.enter(order)
    replies = await _broadcast(scheduler, order, seats.reserve, limit_s=order.timeout_s)
    wrong = {a: reply for a, reply in replies.items() if not isinstance(reply, dict) or reply.get("status") != "OK"}
    if wrong:
        gangs.orders.pop(order.token, None)
        await _broadcast(scheduler, order, seats.end)
        kind = Absent if all(isinstance(reply, OSError) for reply in wrong.values()) else Refused
        raise kind(f"rankwise: {len(wrong)} of {len(order.places)} workers keep no seat: {_why(wrong)}")
    scheduler.log_event(_TOPIC, {"action": "begins", "gang": order.token, "workers": list(order.places)})
    place = next(place for place in map(returned, replies.values()) if place is not None)
    return order, Address(*place)


async def perform(
    token: str, work: Work, place: Address, *, dask_scheduler: Scheduler
) -> dict[str, Outcome | BaseException]:
    """Run all ranks, and return how each has ended, or why its worker does not tell.

    Once a rank has failed, those that others call dead are not waited for, and the rest for a moment; they are missing.
    """
    gangs = _gangs(dask_scheduler)
    order = gangs.orders[token]
    replies = Replies(dask_scheduler, order.places, seats.start, token, work, place)
    told: dict[str, Outcome | BaseException] = {}
    dead: set[int | None] = set()
    until = float("inf")
    while time.monotonic() < until and any(order.places[address] not in dead for address in replies.missing):
        await replies.more(until)
        for address in replies.stopped - told.keys():
            gangs.tell_of_loss(order, address, f"the process of Dask's worker {address} is stopped by a signal")
        told = {address: _outcome(reply) for address, reply in replies.come.items()}
        if until == float("inf") and any(not isinstance(o, Outcome) or o.failed for o in told.values()):
            until = time.monotonic() + LAST_WORDS_S
        dead = {outcome.dead for outcome in told.values() if isinstance(outcome, Outcome)}
    gangs.let_go(token, replies.missing | replies.stopped)
    return told


async def withdraw(token: str, *, dask_scheduler: Scheduler) -> None:
    """Forget a gang, here and on its workers."""
    order = _gangs(dask_scheduler).orders.pop(token, None)
    if order is not None:
        dask_scheduler.log_event(_TOPIC, {"action": "ends", "gang": token})
        await _broadcast(dask_scheduler, order, seats.end)


async def cancel(token: str, reason: str, *, dask_scheduler: Scheduler) -> None:
    """Give all ranks of a gang up, or what waits for workers."""
    gangs = _gangs(dask_scheduler)
    gangs.waiting.pop(token, None)
    order = gangs.orders.get(token)
    if order is not None:
        await _broadcast(dask_scheduler, order, seats.cancel, reason)


def _gangs(scheduler: Scheduler) -> Gangs:
    if _NAME not in scheduler.plugins:
        scheduler.add_plugin(Gangs(scheduler), name=_NAME)
    gangs = scheduler.plugins[_NAME]
    assert isinstance(gangs, Gangs)
    return gangs


def _choose(scheduler: Scheduler, wanted: int | list[Any] | None) -> list[str]:
    """Return the addresses of the workers, in the order of ranks."""
    there = [address for address, state in scheduler.workers.items() if state.status.name in ("running", "paused")]
    if not isinstance(wanted, list):
        count = len(there) if wanted is None else wanted
        if not 0 < count <= len(there):
            raise Absent(f"rankwise: {count or 'some'} workers are wanted, and the cluster has {len(there)}")
        return sorted(there, key=_gangs(scheduler).ranks_of)[:count]
    addresses = [str(scheduler.aliases.get(name, name)) for name in wanted]
    absent = [name for name, address in zip(wanted, addresses, strict=True) if address not in there]
    if absent:
        raise Absent(f"rankwise: no worker {', '.join(map(str, absent))} is there; there are {', '.join(there)}")
    if len(set(addresses)) < len(addresses):
        raise ValueError("rankwise: a worker is named twice, by its name and its address")
    return addresses


async def _broadcast(
    scheduler: Scheduler,
    order: Order,
    function: Function,
    *args: Any,
    limit_s: float = LAST_WORDS_S,
) -> dict[str, Any]:
    """Call a function of `seats` on all workers of a gang; those that do not answer in time may do so later."""
    whole = (order,) if function is seats.reserve else (order.token, *args)
    return await Replies(scheduler, order.places, function, *whole).within(limit_s)


def _outcome(reply: Any) -> Outcome | BaseException:
    """Return how a rank has ended, by its worker's reply."""
    if not isinstance(reply, dict):
        return reply  # type: ignore[no-any-return]
    return returned(reply) if reply.get("status") == "OK" else RuntimeError(_said(reply))


def _why(wrong: Mapping[str, Any]) -> str:
    address, first = next(iter(wrong.items()))
    return _said(first) if isinstance(first, dict) else f"{address}: {first!r}"


def _said(reply: dict[str, Any]) -> str:
    return str(reply.get("text") or reply.get("exception_text") or reply.get("exception"))
