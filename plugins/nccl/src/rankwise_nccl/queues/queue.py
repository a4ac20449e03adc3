"""A queue: one NCCL communicator and one stream, on one device, for some ranks of a group.

Operations of a queue run one after the other, and queues are independent of each other. A queue starts on a thread of
its own, as the members come when they come; what is called meanwhile is queued, and issued by that thread.

Communicators do not block: after each call NCCL is asked until it is no longer busy, as it connects the members within
the first operations of a kind. Meanwhile the works are known to the watchdog, which ends them at their deadline, at a
notice of a peer and at an abort; and the caller's thread sleeps in Python, where signals reach it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rankwise.backends import Deadline, Ending, anew, start_thread
from rankwise.errors import DistBackendError, DistError, UnsupportedOperationError
from rankwise_nccl.library.api import Api, grouped
from rankwise_nccl.library.failures import translate
from rankwise_nccl.queues.device_stream import DeviceStream, settle_on
from rankwise_nccl.queues.settling import settled

if TYPE_CHECKING:
    from rankwise_nccl.queues.works import NcclWork

#: How long an abort waits for a call into NCCL to return. One that blocks there, as they all do where the environment
#: makes communicators block, is freed by the abort itself.
_HANDOVER_S = 0.02

#: How long a stream may take for what it had to do behind what was aborted, such as copies.
_THROUGH_S = 0.5


class CommQueue(DeviceStream):
    """One communicator with its stream.

    Args:
        api: CuPy and NCCL.
        device: Index of the device.
        name: What it is for, in messages.
        start: Makes the NCCL communicator; waits until all members have come, or what it is given says to give up.
        connect: Makes NCCL connect the members, which it otherwise does within the first operation; called with the
            NCCL communicator and the stream.
        failed: Told of an error that makes the group unusable.
        flush: Ends the caller's open batch, so that nobody waits for what is still in it.
        buffers: Arrays to register with the NCCL communicator.
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
        buffers: Sequence[Any] = (),
    ) -> None:
        super().__init__(api, device)
        self.name, self.flush = name, flush
        self.comm: Any = None
        #: Works that a thread is about to hand over, or is handing over; those of which that has failed stay until the
        #: abort.
        self.entering: deque[NcclWork] = deque()
        #: Issued works that the device has not been seen to be done with, oldest first.
        self.pending: deque[NcclWork] = deque()
        #: Works that wait for the queue to start, in the groups in which they are to be issued.
        self.queued: deque[list[NcclWork]] = deque()
        #: Messages to oneself that have yet to meet the other end.
        self.unmatched: deque[NcclWork] = deque()
        #: What graphs use that were captured here, and may be launched at any time; the program holds its own arrays.
        self.captured: list[Any] = []
        #: Held while works are handed to NCCL and until it has taken them, so that they keep their order.
        self.lock = threading.RLock()
        #: Held within each call into NCCL, so that an abort does not take the communicator away from under it.
        self.within = threading.RLock()
        self._buffers, self._registered = buffers, list[int]()
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
        if self.captures():
            self.capture(work)
        work.ready = ready = self._new_event(disable_timing=True)
        ready.record(self._current(self.device))

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
                raise self.closed(works[0])
            else:
                self.queued.append(works)

    def order(self, work: NcclWork) -> None:
        """Make what NCCL is given next wait for what the caller's stream had to do before `work`."""
        self.stream.wait_event(work.ready)

    def hand_over(self, work: NcclWork) -> None:
        """Give `work` to NCCL."""
        if self.comm is None:
            raise self.closed(work)
        work.call(self.comm, self.address)

    def is_busy(self, work: NcclWork) -> bool:
        """Tell whether NCCL has yet to take `work` and what was given with it; raise what ended it meanwhile."""
        if work.ended and work.failure is not None:
            raise anew(work.failure)
        with self.within:
            if self.comm is None:
                raise self.closed(work)
            return bool(self.comm.check_async_error())

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

    def closed(self, work: NcclWork) -> DistBackendError:
        """Return the error of a work that comes too late."""
        return DistBackendError(f"{work.title}: its communicator has been closed")

    # ------------------------------------------------------------------ for the watchdog

    def works(self) -> list[NcclWork]:
        """Return all works that have not ended."""
        return [*self.given(), *self.unmatched]

    def given(self) -> list[NcclWork]:
        """Return those that need no more from this rank.

        They are read in the order in which works move on, each of which has come before it leaves: none is missed.
        """
        entering = self.entering.copy()
        queued = [work for works in self.queued.copy() for work in works]
        return [*entering, *queued, *self.pending.copy()]

    def sweep(self) -> bool:
        """End the works that the device is done with; tell whether there was one.

        Raises:
            DistError: What the device has met.
        """
        swept = False
        while self.pending and self.pending[0].ask():
            self.pending.popleft()
            swept = True
        return swept

    def check(self) -> None:
        """Raise if NCCL has met an error while nobody was looking; called on the watchdog's thread alone."""
        if not self.within.acquire(blocking=False):
            return  # whoever is there will see it
        try:
            if self.comm is not None:
                self.comm.check_async_error()
        except Exception as error:
            raise translate(error, self.name) from error
        finally:
            self.within.release()

    def abort(self) -> None:
        """Make NCCL give up what it is doing; called on a thread of its own, as this may take its time."""
        self._closed = True
        held = self.within.acquire(timeout=_HANDOVER_S)
        comm, self.comm = self.comm, None
        if held:
            self.within.release()  # nobody is to wait for what follows
        self.started.tell()
        if comm is not None:
            settle_on(self.api, self.device)
            comm.abort()
        if comm is None or self._is_through():
            for held_works in (self.pending, self.entering, self.queued, self.unmatched):
                held_works.clear()

    def destroy(self, deadline: Deadline) -> bool:
        """Give the NCCL communicator back, on a thread of its own; tell whether the peers let it go in time.

        What is pending by now is a receive that nobody sends to: to end in good order would wait for it.
        """
        self._closed = True
        with self.within:
            comm, self.comm = self.comm, None
        if comm is None:
            return True
        settle_on(self.api, self.device)
        if not all(work.poll() for work in self.pending.copy()):
            comm.abort()
            return True
        for handle in self._registered:
            comm.deregister(handle)
        comm.finalize()
        if settled(comm.check_async_error, deadline.expired):
            comm.destroy()
            return True
        comm.abort()
        return False

    def _is_through(self) -> bool:
        """Tell whether the stream has come to its end soon, so that the memory of what has failed is in use no more."""
        try:
            mark = self._new_event(disable_timing=True)
            mark.record(self.stream)
            return settled(lambda: not self.has_happened(mark), Deadline(_THROUGH_S).expired)
        except Exception:  # this CUDA does nothing more
            return True

    # ------------------------------------------------------------------ the start

    def _begin(self) -> None:
        try:
            settle_on(self.api, self.device)
            comm = self._start(lambda: self._closed)
            self._connect(comm, self.stream)
            if not settled(comm.check_async_error, lambda: self._closed):
                comm.abort()
                return
            self._registered = [comm.register(buffer.data.ptr, buffer.nbytes) for buffer in self._buffers]
            with self.lock:
                self.comm = comm
                if self._closed:
                    self.abort()
                while self.queued:
                    issue(self.queued[0], self.api)
                    self.queued.popleft()
        except Exception as error:  # whatever it is, it belongs to those who wait for the works
            if not self._closed:
                self._failed(translate(error, f"starting NCCL for {self.name}"))
        finally:
            self.started.tell()


def issue(works: Sequence[NcclWork], api: Api) -> None:
    """Hand over prepared works of queues that have started, all in one group if there are several."""
    if len(works) == 1:  # nearly all calls, whose time counts
        if not works[0].ended:
            _issue_alone(works[0])
        return
    ours = [work for work in works if not work.ended]
    for work in ours:
        _order(work)
    if ours:
        with ExitStack() as calls:
            for queue in sorted({work.queue for work in ours}, key=id):
                calls.enter_context(queue.within)
            with grouped(api.nccl):
                for work in ours:
                    _hand_over(work)
    for work in {work.queue: work for work in ours}.values():
        _until_taken(work)
    for work in ours:
        _conclude(work)


def _issue_alone(work: NcclWork) -> None:
    _order(work)
    queue = work.queue
    try:
        with queue.within:
            queue.hand_over(work)
            busy = queue.comm.check_async_error()
        if busy:
            settled(lambda: queue.is_busy(work))
    except Exception as error:
        raise translate(error, work.title) from error
    _conclude(work)


def _order(work: NcclWork) -> None:
    if work.queue.comm is None:
        raise work.queue.closed(work)
    work.queue.order(work)


def _hand_over(work: NcclWork) -> None:
    try:
        work.queue.hand_over(work)
    except Exception as error:
        raise translate(error, work.title) from error


def _until_taken(work: NcclWork) -> None:
    try:
        settled(lambda: work.queue.is_busy(work))
    except Exception as error:
        raise translate(error, work.title) from error


def _conclude(work: NcclWork) -> None:
    work.queue.conclude(work)
    if work.captured:
        work.queue.captured.append((work.call, work.after))
    else:
        work.queue.pending.append(work)
    work.issued = True
