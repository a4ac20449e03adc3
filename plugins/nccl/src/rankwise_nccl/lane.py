"""A lane: one NCCL communicator and one stream, on one device, for some ranks of a group.

Operations of a lane run one after the other, and lanes are independent of each other. A lane starts on a thread of
its own, since NCCL blocks until all members have come; what is called meanwhile is queued, and issued by that thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from rankwise.errors import DistBackendError, DistError, UnsupportedOperationError
from rankwise_nccl.failures import is_in_progress, translate

if TYPE_CHECKING:
    from rankwise_nccl.works import NcclWork

__all__ = ["Api", "Lane", "grouped"]

#: Addresses that stand for a default stream; CUDA does not capture the legacy one.
_DEFAULT_STREAMS = frozenset({0, 1})

#: How long an abort waits for a thread that is just handing an operation to NCCL. One that is stuck there is freed by
#: the abort itself.
_HANDOVER_S = 1.0

#: Does nothing, any number of times.
_HERE = nullcontext()


class Api(NamedTuple):
    """All that is used of CuPy: the packages `cupy`, `cupy.cuda` and `cupy.cuda.nccl`."""

    cupy: Any
    cuda: Any
    nccl: Any

    @classmethod
    def installed(cls) -> Api:
        """Import them."""
        import cupy
        from cupy.cuda import nccl

        return cls(cupy, cupy.cuda, nccl)


@contextmanager
def grouped(nccl: Any) -> Iterator[None]:
    """Hand over all calls of a block to NCCL together, and end the group whatever happens in it."""
    nccl.groupStart()
    try:
        yield
    finally:
        nccl.groupEnd()


class Lane:
    """One communicator with its stream.

    Args:
        api: CuPy.
        device: Index of the device.
        name: What it is for, in messages.
        start: Makes the NCCL communicator; blocks until all members have come, or what it is given says to give up.
        connect: Makes NCCL connect the members, which it otherwise does within the first operation, where it would
            block the caller; called with the NCCL communicator and the stream.
        failed: Told of an error that makes the group unusable.
        flush: Ends the caller's open batch, so that nobody waits for what is still in it.
    """

    def __init__(
        self,
        api: Api,
        device: int,
        name: str,
        start: Callable[[Callable[[], bool]], Any],
        connect: Callable[[Any, Any], None],
        failed: Callable[[DistError], object],
        flush: Callable[[], None],
    ) -> None:
        self.api, self.device, self.name, self.flush = api, device, name, flush
        self.comm: Any = None
        #: Issued works that the device has not been seen to be done with, oldest first.
        self.pending: deque[NcclWork] = deque()
        #: Works that wait for the lane to start, in the groups in which they are to be issued.
        self.queued: deque[list[NcclWork]] = deque()
        #: Messages to oneself that have yet to meet the other end.
        self.unmatched: deque[NcclWork] = deque()
        #: Held while works are handed to NCCL, so that they keep their order.
        self.lock = threading.RLock()
        self._start, self._failed, self._connect = start, failed, connect
        self._closed = False
        # These are on the path of every operation.
        self.new_event, self._current = api.cuda.Event, api.cuda.get_current_stream
        self._current_device = api.cuda.runtime.getDevice
        with self.on_device():
            self.stream = api.cuda.Stream(non_blocking=True)
        self.started = threading.Event()
        self._thread = threading.Thread(target=self._begin, name=f"rankwise start {name}", daemon=True)

    def start(self) -> None:
        """Begin to start; the works that are queued are issued once that has been done."""
        self._thread.start()

    def on_device(self) -> Any:
        """Return a context in which this lane's device is the current one."""
        if self._current_device() == self.device:
            return _HERE
        return self.api.cuda.Device(self.device)

    # ------------------------------------------------------------------ operations

    def prepare(self, work: NcclWork) -> None:
        """Mark the place of `work` in the caller's stream: what is there before it comes before it."""
        with self.on_device():
            current = self._current(self.device)
            if current.ptr not in _DEFAULT_STREAMS and current.is_capturing():
                if self.comm is None:
                    raise UnsupportedOperationError(
                        f"{work.title}: NCCL cannot be started while a graph is captured; make one call of this kind "
                        "on the group before the capture"
                    )
                work.captured = True
            work.ready = ready = self.new_event(disable_timing=True)
            ready.record(current)

    def put(self, works: list[NcclWork]) -> None:
        """Issue prepared works together, or queue them until the lane has started."""
        with self.lock:
            if self.comm is not None:
                issue(works, self.api)
            elif self._closed:
                raise DistBackendError(f"{works[0].title}: its communicator has been closed")
            else:
                self.queued.append(works)

    def join(self, work: NcclWork) -> None:
        """Make the caller's current stream wait for an issued work."""
        with self.on_device():
            self._current(self.device).wait_event(work.done)

    # ------------------------------------------------------------------ for the watchdog

    def works(self) -> list[NcclWork]:
        """Return all works that have not ended."""
        return [*self.given(), *self.unmatched]

    def given(self) -> list[NcclWork]:
        """Return those that need no more from this rank."""
        return [*self.pending, *(work for works in self.queued.copy() for work in works)]

    def sweep(self) -> bool:
        """End the works that the device is done with; tell whether there was one."""
        swept = False
        while self.pending and self.pending[0].poll():
            self.pending.popleft()
            swept = True
        return swept

    def check(self) -> None:
        """Raise if NCCL has met an error while nobody was looking."""
        comm = self.comm
        if comm is None:
            return
        try:
            comm.check_async_error()
        except Exception as error:
            if not is_in_progress(error):
                raise translate(error, self.name) from error

    def abort(self) -> None:
        """Make NCCL give up what it is doing; called by the watchdog alone, as this may take its time."""
        held = self.lock.acquire(timeout=_HANDOVER_S)
        try:
            self._closed = True
            comm, self.comm = self.comm, None
            if comm is not None:
                with self.on_device():
                    comm.abort()
        finally:
            if held:
                self.lock.release()
            self.started.set()
        for held_works in (self.pending, self.queued, self.unmatched):
            held_works.clear()

    def destroy(self) -> None:
        """Give the NCCL communicator back; blocks until the peers do so too, or have gone."""
        with self.lock:
            self._closed = True
            comm, self.comm = self.comm, None
        if comm is not None:
            with self.on_device():
                comm.destroy()

    # ------------------------------------------------------------------ the start

    def _begin(self) -> None:
        try:
            with self.on_device():
                comm = self._start(lambda: self._closed)
                self._connect(comm, self.stream)
                with self.lock:
                    if self._closed:
                        comm.abort()
                        return
                    self.comm = comm
                    waiting, self.queued = list(self.queued), deque()
                    for works in waiting:
                        issue(works, self.api)
        except Exception as error:  # whatever it is, it belongs to those who wait for the works
            if not self._closed:
                self._failed(translate(error, f"starting NCCL for {self.name}"))
        finally:
            self.started.set()


def issue(works: list[NcclWork], api: Api) -> None:
    """Hand over prepared works of lanes that have started, all in one group if there are several."""
    ours = [work for work in works if not work.ended]
    for work in ours:
        if work.lane.comm is None:
            raise DistBackendError(f"{work.title}: its communicator has been closed")
        # What the caller's stream had to do before the operation comes first.
        work.lane.stream.wait_event(work.ready)
    if len(ours) == 1:
        _call(ours[0], ours[0].lane)
    elif ours:
        with grouped(api.nccl):
            for work in ours:
                _call(work, work.lane)
    for work in ours:
        _end(work, work.lane)


def _call(work: NcclWork, lane: Lane) -> None:
    """Hand one operation to NCCL."""
    try:
        work.call(lane.comm, lane.stream.ptr)
    except Exception as error:
        raise translate(error, work.title) from error


def _end(work: NcclWork, lane: Lane) -> None:
    """Mark the end of an operation in its lane's stream."""
    with lane.on_device():
        if work.after is not None:
            work.after(lane.stream.ptr)
        work.done = done = lane.new_event(disable_timing=True)
        done.record(lane.stream)
    if not work.captured:
        lane.pending.append(work)
    work.issued = True
