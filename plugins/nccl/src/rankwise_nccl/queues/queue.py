"""A queue: one NCCL communicator and one stream, on one device, for some ranks of a group.

Operations of a queue run one after the other, and queues are independent of each other. A queue starts on a thread of
its own, since NCCL blocks until all members have come; what is called meanwhile is queued, and issued by that thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rankwise.backends import Ending, start_thread
from rankwise.errors import DistBackendError, DistError, UnsupportedOperationError
from rankwise_nccl.library.api import Api, grouped
from rankwise_nccl.library.failures import is_in_progress, translate
from rankwise_nccl.queues.device_stream import DEFAULT_STREAMS, DeviceStream

if TYPE_CHECKING:
    from rankwise_nccl.queues.works import NcclWork

__all__ = ["CommQueue", "issue"]

#: How long an abort waits for a thread that is just handing an operation to NCCL. One that is stuck there is freed by
#: the abort itself.
_HANDOVER_S = 1.0


class CommQueue(DeviceStream):
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
        super().__init__(api, device)
        self.name, self.flush = name, flush
        self.comm: Any = None
        #: Issued works that the device has not been seen to be done with, oldest first.
        self.pending: deque[NcclWork] = deque()
        #: Works that wait for the queue to start, in the groups in which they are to be issued.
        self.queued: deque[list[NcclWork]] = deque()
        #: Messages to oneself that have yet to meet the other end.
        self.unmatched: deque[NcclWork] = deque()
        #: What graphs use that were captured here, and may be launched at any time; the program holds its own arrays.
        self.captured: list[Any] = []
        #: Held while works are handed to NCCL, so that they keep their order.
        self.lock = threading.RLock()
        self._start, self._failed, self._connect = start, failed, connect
        self._closed = False
        self.started = Ending()
        self._thread = threading.Thread(target=self._begin, name=f"rankwise start {name}", daemon=True)

    def start(self) -> None:
        """Begin to start; the works that are queued are issued once that has been done."""
        start_thread(self._thread)

    # ------------------------------------------------------------------ operations

    def prepare(self, work: NcclWork) -> None:
        """Mark the place of `work` in the caller's stream: what is there before it comes before it."""
        if self._current_device() != self.device:  # a context that does nothing takes longer than to look
            with self.api.cuda.Device(self.device):
                self.prepare(work)
            return
        current = self._current(self.device)
        if current.ptr not in DEFAULT_STREAMS and current.is_capturing():
            self.capture(work)
        work.ready = ready = self._new_event(disable_timing=True)
        ready.record(current)

    def capture(self, work: NcclWork) -> None:
        """Note that `work` becomes a part of a graph."""
        if self.comm is None:
            raise UnsupportedOperationError(
                f"{work.title}: NCCL cannot be started while a graph is captured; make one call of this kind "
                "on the group before the capture"
            )
        work.captured = True

    def put(self, works: list[NcclWork]) -> None:
        """Issue prepared works together, or queue them until the queue has started."""
        with self.lock:
            if self.comm is not None:
                issue(works, self.api)
            elif self._closed:
                raise DistBackendError(f"{works[0].title}: its communicator has been closed")
            else:
                self.queued.append(works)

    def order(self, work: NcclWork) -> None:
        """Make what NCCL is given next wait for what the caller's stream had to do before `work`."""
        self.stream.wait_event(work.ready)

    def hand_over(self, work: NcclWork) -> None:
        """Give `work` to NCCL."""
        work.call(self.comm, self.address)

    def conclude(self, work: NcclWork) -> None:
        """Put what follows NCCL's part on the stream, and mark the end of `work` there."""
        if self._current_device() != self.device:
            with self.api.cuda.Device(self.device):
                self.conclude(work)
            return
        if work.after is not None:
            work.after(self.address)
        work.done = done = self._new_event(disable_timing=True)
        done.record(self.stream)

    def join(self, work: NcclWork) -> None:
        """Make the caller's current stream wait for an issued work."""
        self.lead(work.done)

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
        try:
            self._inquire(self.comm)
        except Exception as error:
            if not is_in_progress(error):
                raise translate(error, self.name) from error

    def abort(self) -> None:
        """Make NCCL give up what it is doing; called by the watchdog alone, as this may take its time."""
        held = self.lock.acquire(timeout=_HANDOVER_S)
        self._closed = True
        comm, self.comm = self.comm, None
        if held:
            self.lock.release()  # nobody is to wait for what follows
        self.started.tell()
        self._abort(comm)
        for held_works in (self.pending, self.queued, self.unmatched):
            held_works.clear()

    def destroy(self) -> None:
        """Give the NCCL communicator back; blocks until the peers do so too, or have gone."""
        with self.lock:
            self._closed = True
            comm, self.comm = self.comm, None
        self._destroy(comm)

    # ------------------------------------------------------------------ the start

    def _begin(self) -> None:
        try:
            with self.on_device():
                comm = self._start(lambda: self._closed)
                self._connect(comm, self.stream)
                with self.lock:
                    if self._closed:
                        self._abort(comm)
                        return
                    self.comm = comm
                    waiting, self.queued = list(self.queued), deque()
                    for works in waiting:
                        issue(works, self.api)
        except Exception as error:  # whatever it is, it belongs to those who wait for the works
            if not self._closed:
                self._failed(translate(error, f"starting NCCL for {self.name}"))
        finally:
            self.started.tell()

    def _inquire(self, comm: Any) -> None:
        if comm is not None:
            comm.check_async_error()

    def _abort(self, comm: Any) -> None:
        if comm is not None:
            with self.on_device():
                comm.abort()

    def _destroy(self, comm: Any) -> None:
        if comm is not None:
            with self.on_device():
                comm.destroy()


def issue(works: list[NcclWork], api: Api) -> None:
    """Hand over prepared works of queues that have started, all in one group if there are several."""
    if len(works) == 1:  # nearly all calls, whose time counts
        work = works[0]
        if not work.ended:
            _order(work)
            _hand_over(work)
            _conclude(work)
        return
    ours = [work for work in works if not work.ended]
    for work in ours:
        _order(work)
    if ours:
        with grouped(api.nccl):
            for work in ours:
                _hand_over(work)
    for work in ours:
        _conclude(work)


def _order(work: NcclWork) -> None:
    if work.queue.comm is None:
        raise DistBackendError(f"{work.title}: its communicator has been closed")
    work.queue.order(work)


def _hand_over(work: NcclWork) -> None:
    try:
        work.queue.hand_over(work)
    except Exception as error:
        raise translate(error, work.title) from error


def _conclude(work: NcclWork) -> None:
    work.queue.conclude(work)
    if work.captured:
        work.queue.captured.append((work.call, work.after))
    else:
        work.queue.pending.append(work)
    work.issued = True
