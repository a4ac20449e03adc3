"""What the workers of a gang reply to the scheduler, as it comes; or why nothing does."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any

import psutil  # type: ignore[import-untyped]  # which Dask needs anyway
from distributed import Nanny, Scheduler
from distributed.protocol.serialize import Serialized, deserialize

#: For how long a worker is silent before its nanny is asked for its state, and how often that is looked at.
_SILENT_S, _LOOK_S = 5.0, 0.5

Function = Callable[..., Coroutine[Any, Any, Any]]


class Replies:
    """A call of a function on each of some workers.

    A worker whose process is stopped answers nobody, and before its rank has come to the others they do not know it
    either. But its nanny does.

    Args:
        scheduler: The scheduler, whose event loop this is.
        workers: Their addresses.
        function: One of `seats`.
        *args: Its arguments.

    Attributes:
        come: The reply of each worker that has answered, or the exception that it does not come for.
        stopped: The workers whose processes are stopped.
    """

    def __init__(self, scheduler: Scheduler, workers: Collection[str], function: Function, *args: Any) -> None:
        self._scheduler = scheduler
        self._calls = {address: asyncio.ensure_future(_call(scheduler, address, function, args)) for address in workers}
        self.come: dict[str, Any] = {}
        self.stopped: set[str] = set()

    @property
    def missing(self) -> set[str]:
        """The workers that have not answered."""
        return self._calls.keys() - self.come.keys()

    async def more(self, until: float) -> None:
        """Return when more have come, every now and then, or at a moment of the monotonic clock."""
        left_s = max(0.0, min(until - time.monotonic(), _LOOK_S))
        await asyncio.wait(
            [self._calls[address] for address in self.missing], timeout=left_s, return_when=asyncio.FIRST_COMPLETED
        )
        self.come |= {address: call.result() for address, call in self._calls.items() if call.done()}
        self.stopped |= await _stopped(self._scheduler, self.missing)
        self.come |= {a: OSError(f"the process of {a} is stopped by a signal") for a in self.stopped & self.missing}

    async def within(self, limit_s: float) -> dict[str, Any]:
        """Return what comes within a time; what comes later is let go."""
        until = time.monotonic() + limit_s
        while self.missing and time.monotonic() < until:
            await self.more(until)
        return dict.fromkeys(self.missing, TimeoutError(f"no answer within {limit_s:g} s")) | self.come


def returned(reply: dict[str, Any]) -> Any:
    """Return what the function has returned; a scheduler leaves it as it came."""
    result = reply["result"]
    return deserialize(result.header, result.frames) if isinstance(result, Serialized) else result.data


async def _call(
    scheduler: Scheduler, address: str, function: Function, args: tuple[Any, ...] = (), nanny: bool = False
) -> Any:
    """Return the reply of a worker or of its nanny, or the exception that it does not come for."""
    if address not in scheduler.workers:
        return ConnectionError(f"{address} has left the cluster")
    message = {"op": "run", "function": pickle.dumps(function), "args": pickle.dumps(args), "wait": True}
    replies = await scheduler.broadcast(msg=message, workers=[address], nanny=nanny, on_error="return")
    return replies[address]


async def _stopped(scheduler: Scheduler, workers: Collection[str]) -> set[str]:
    """Return those workers that are silent because their processes are stopped."""
    states = [scheduler.workers[address] for address in workers if address in scheduler.workers]
    silent = [state for state in states if state.nanny and time.time() - state.last_seen > _SILENT_S]
    asked = {
        state.address: asyncio.ensure_future(_call(scheduler, state.address, _is_stopped, nanny=True))
        for state in silent
    }
    if asked:
        await asyncio.wait(asked.values(), timeout=_SILENT_S)
    told = {address: call.result() for address, call in asked.items() if call.done()}
    return {address for address, reply in told.items() if isinstance(reply, dict) and returned(reply)}


async def _is_stopped(*, dask_worker: Nanny) -> bool:
    """Tell whether the process of a nanny's worker is stopped."""
    with suppress(psutil.Error):
        return bool(psutil.Process(dask_worker.pid).status() == psutil.STATUS_STOPPED)
    return False
