"""What a worker does for a gang: it keeps a seat, and runs a rank on it in a thread of its own.

The functions here run in the worker's event loop, called from outside of its tasks: none is queued, stolen or tried
again. The pool's threads stay free, so that a busy worker is no obstacle and gangs do not wait for each other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import distributed.worker
import numpy as np
from distributed import Worker
from distributed.comm import get_address_host

import rankwise as dist
from rankwise.backends import start_thread
from rankwise_dask.orders import Address, Order, Outcome, Work, failure, success

#: How long a seat is kept for a client that does not come back.
_UNUSED_S = 60.0
#: The column of the dashboard's page of workers that counts the ranks.
_METRIC = "rankwise ranks"

#: By gang and worker: a process may be several workers.
_seats: dict[tuple[str, str], Seat] = {}


class Seat:
    """A rank's place on this worker, from the reservation to the end of its gang."""

    def __init__(self, order: Order, rank: int) -> None:
        self.order, self.rank = order, rank
        self.running = False
        #: What the rank has returned instead of its chunks, until tasks of Dask's take it.
        self.results: dict[Any, np.ndarray[Any, Any]] = {}
        self._server: dist.TCPStore | None = None
        self._store: dist.TCPStore | None = None
        self._group: dist.ProcessGroup | None = None
        self._lock = threading.Lock()
        self._given_up = ""

    def serve(self, host: str) -> Address:
        """Serve the store where the ranks meet, as the worker of rank 0 does."""
        order = self.order
        self._server = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, secret=order.secret)
        return Address(host, self._server.port)

    def run(self, work: Work, place: Address, chunks: list[Any] | None) -> Outcome:
        """Be the rank; return how it ended."""
        try:
            function, args = work.function()
            with self._joined(place) as group:
                if chunks is None:
                    return success(function(group, *args))
                keys = [key for key, _ in chunks]
                return success(self._keep(keys, chunks, function(group, [array for _, array in chunks], *args)))
        except BaseException as error:
            return failure(error)

    def _keep(self, keys: list[Any], chunks: list[Any], returned: Any) -> list[Any]:
        """Keep what a rank returned for its chunks; return their dtypes."""
        arrays = [np.asarray(array) for array in returned]
        shapes = [array.shape for _, array in chunks]
        if [array.shape for array in arrays] != shapes:
            raise ValueError(
                f"map_ranks: rank {self.rank} has chunks of the shapes {shapes}, but the function returned "
                f"{[array.shape for array in arrays]}"
            )
        self.results = dict(zip(keys, arrays, strict=True))
        return [array.dtype for array in arrays]

    @contextmanager
    def _joined(self, place: Address) -> Iterator[dist.ProcessGroup]:
        order = self.order
        self._check()
        store = dist.TCPStore(*place, timeout=order.timeout_s, secret=order.secret, wait_for_server=False)
        try:
            with self._lock:
                self._store = store
            self._check()
            group = dist.ProcessGroup.create(
                store=store,
                rank=self.rank,
                size=len(order.places),
                name=order.token,
                backend=order.backend,
                timeout=order.timeout_s,
                description=f"of Dask {order.token[:6]}",
            )
            with self._lock:
                self._group = group
            try:
                self._check()
                yield group
            except BaseException as error:
                group.abort(f"as its function raised {type(error).__name__}")
                raise
            finally:
                with self._lock:
                    self._group = None
                if group.is_open():  # the function may have left it, as the last thing that programs do
                    dist.destroy_process_group(group)
        finally:
            with self._lock:
                self._store = None
            store.close()

    def _check(self) -> None:
        if self._given_up:
            raise dist.GroupAbortedError(f"this rank was given up: {self._given_up}")

    def give_up(self, reason: str) -> None:
        """Have the rank's calls raise, now and later; what calls nothing goes on, as no thread can be stopped."""
        with self._lock:
            self._given_up = self._given_up or reason
            group, store = self._group, self._store
        if group is not None:
            group.abort(f"as {reason}")
        elif store is not None:
            store.close()  # which breaks off the making of the group

    def lost(self, rank: int, cause: str) -> None:
        """Learn that the worker of another rank is gone."""
        if rank == self.rank:
            return
        with self._lock:
            group = self._group
        if group is None:
            self.give_up(f"rank {rank} is gone: {cause}")
        else:
            group.report_death(rank, cause)

    def close(self) -> None:
        """End what is served here."""
        self.give_up("its gang has ended")
        if self._server is not None:
            self._server.close()


# ---------------------------------------------------------------------- what is called from outside


async def reserve(order: Order, *, dask_worker: Worker) -> Address | None:
    """Keep a seat; the worker of rank 0 returns where the ranks meet."""
    at = order.token, dask_worker.address
    seat = _seats[at] = Seat(order, order.places[dask_worker.address])
    dask_worker.metrics.setdefault(_METRIC, _count)
    asyncio.get_running_loop().call_later(_UNUSED_S, _expire, at, seat)
    if seat.rank:
        return None
    return await asyncio.to_thread(seat.serve, get_address_host(dask_worker.address))


async def start(token: str, work: Work, place: Address, *, dask_worker: Worker) -> Outcome:
    """Run the rank to its end, without keeping the event loop from anything else."""
    seat = _seats.get((token, dask_worker.address))
    if seat is None:
        raise RuntimeError(f"rankwise: worker {dask_worker.address} has given its seat up")
    seat.running = True
    chunks = None
    if work.chunks is not None:
        chunks = [(key, _chunk(dask_worker, key)) for key in work.chunks[dask_worker.address]]
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()

    def main() -> None:
        _be_like_a_task(dask_worker)
        outcome = seat.run(work, place, chunks)
        with suppress(RuntimeError):  # the worker has ended, and its loop with it
            loop.call_soon_threadsafe(_tell, done, outcome)

    start_thread(threading.Thread(target=main, name=f"rankwise rank {seat.rank}", daemon=True))
    return await done


async def report(token: str, rank: int, cause: str, *, dask_worker: Worker) -> None:
    """Tell the rank on this worker that another one is lost."""
    seat = _seats.get((token, dask_worker.address))
    if seat is not None:
        await asyncio.to_thread(seat.lost, rank, cause)


async def cancel(token: str, reason: str, *, dask_worker: Worker) -> None:
    """Give the rank on this worker up."""
    seat = _seats.get((token, dask_worker.address))
    if seat is not None:
        await asyncio.to_thread(seat.give_up, reason)


async def end(token: str, *, dask_worker: Worker) -> None:
    """Forget the gang."""
    seat = _seats.pop((token, dask_worker.address), None)
    if seat is not None:
        await asyncio.to_thread(seat.close)


def take(token: str, address: str, key: Any) -> np.ndarray[Any, Any]:
    """Return what a rank has made of a chunk, as a task of Dask's: so it becomes the task's result, where it lies."""
    seat = _seats.get((token, address))
    if seat is None or key not in seat.results:
        raise LookupError(f"map_ranks: what was made of chunk {key} is gone with its worker {address}")
    return seat.results.pop(key)


def _tell(done: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not done.done():
        done.set_result(outcome)


def _be_like_a_task(worker: Worker) -> None:
    """Have `get_worker`, `get_client`, `Event` and so on know the worker in this thread, as in those of tasks."""
    distributed.worker.thread_state.execution_state = {"worker": worker}
    if hasattr(distributed.worker, "_worker_cvar"):  # since 2026
        distributed.worker._worker_cvar.set(worker)


def _chunk(worker: Worker, key: Any) -> np.ndarray[Any, Any]:
    """Return a chunk as it lies in the worker's memory; nobody may write into it, as others may read it."""
    if key not in worker.data:
        raise LookupError(f"map_ranks: chunk {key} has left worker {worker.address}")
    array: np.ndarray[Any, Any] = np.asarray(worker.data[key]).view()
    array.flags.writeable = False
    return array


def _expire(at: tuple[str, str], seat: Seat) -> None:
    if not seat.running and _seats.get(at) is seat:
        del _seats[at]
        start_thread(threading.Thread(target=seat.close, daemon=True))


def _count(worker: Worker) -> int:
    """Return how many ranks a worker has."""
    return sum(seat.running for (_, address), seat in list(_seats.items()) if address == worker.address)
