"""The thread that looks after a group: it ends works, keeps their deadlines, and aborts NCCL.

Nobody else calls NCCL's abort, so that it happens once, on a thread that may take its time, while the threads that wait
for a work have already been told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Protocol

from rankwise.backends import start_thread
from rankwise.errors import DistError, DistTimeoutError
from rankwise_nccl.group.notices import Notices
from rankwise_nccl.library.failures import translate
from rankwise_nccl.queues.queue import CommQueue
from rankwise_nccl.queues.together import together

__all__ = ["Watchdog"]

#: How often the device is looked at: soon after it was given something, later less often.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.5e-3, 20e-3

#: How often NCCL is asked for errors, and the store for notices of the peers.
_INSPECTION_S = 0.2


class _Group(Protocol):
    failure: DistError | None

    def queues(self) -> Sequence[CommQueue]:
        """Return all queues."""

    def fail(self, error: DistError) -> object:
        """Make the group unusable."""

    def timed_out(self, text: str, waited_for: Sequence[int] = ()) -> DistTimeoutError:
        """Return the error of an operation whose time is up."""


class _Bell:
    """What wakes the thread; a bell that has been rung stays so until it is heard.

    It is no event: an interrupt of the thread that rings would leave the lock of that held, and this one at it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Ring."""
        with suppress(RuntimeError):  # it has been rung
            self._lock.release()

    def wait(self, timeout_s: float = -1) -> None:
        """Wait until it rings, or for so long."""
        self._lock.acquire(timeout=timeout_s)


class Watchdog:
    """One group's watchdog; its thread is started by the first operation.

    Args:
        group: The communicator that it looks after.
        notices: Where peers learn of failures.
        name: The thread's name.
        absent: Tells who has not come to a queue that is starting.
    """

    def __init__(
        self, group: _Group, notices: Notices, name: str, absent: Callable[[CommQueue], Sequence[int]]
    ) -> None:
        self._group, self._notices, self._name, self._absent = group, notices, name, absent
        self._wake = _Bell()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._idle = False
        self._stopping = False
        self._error: DistError | None = None
        self._told = False
        self._inspected = 0.0

    def look(self) -> None:
        """Begin to look: something has been issued."""
        if self._thread is None:
            self._begin()
        elif self._idle:
            self._wake.ring()

    def abort(self, error: DistError) -> None:
        """Abort all queues with `error`, soon; never blocks."""
        with self._lock:
            self._error = self._error or error
        self._begin()
        self._wake.ring()

    def stop(self, timeout_s: float) -> bool:
        """End the thread, once an abort that was asked for is done; tell whether it has ended in time."""
        self._stopping = True
        self._wake.ring()
        with self._lock:
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                start_thread(thread)
                self._thread = thread

    def _run(self) -> None:
        pause_s = _SHORTEST_PAUSE_S
        while self._error is None and not self._stopping:
            if self._rest():
                pause_s = _SHORTEST_PAUSE_S
                continue
            try:
                swept = self._round()
            except Exception as error:  # whatever it is, the group cannot go on
                self._fail(translate(error, self._name))
                break
            pause_s = _SHORTEST_PAUSE_S if swept else min(2 * pause_s, _LONGEST_PAUSE_S)
            self._wake.wait(pause_s)
        if self._error is not None:
            self._give_up(self._error)

    def _rest(self) -> bool:
        """Sleep while there is nothing to look at; tell whether that was so."""
        self._idle = True
        busy = any(queue.works() for queue in self._group.queues())
        if not busy and self._error is None and not self._stopping:
            self._wake.wait()
        self._idle = False
        return not busy

    def _round(self) -> bool:
        swept = False
        for queue in self._group.queues():
            swept |= queue.sweep()
            for work in queue.works():
                if work.deadline.expired() and not work.poll():
                    raise self._late(queue, work.title, work.deadline.timeout_s)
        if monotonic() - self._inspected > _INSPECTION_S:
            self._inspect()
            self._inspected = monotonic()
        return swept

    def _inspect(self) -> None:
        for queue in self._group.queues():
            queue.check()
        heard = self._notices.hear()
        if heard is not None:
            self._told = True
            raise heard

    def _late(self, queue: CommQueue, title: str, timeout_s: float) -> DistTimeoutError:
        if queue.comm is not None:
            return self._group.timed_out(
                f"{title}: not done within {timeout_s:g} s; perhaps not all ranks have called it, or not with the same "
                "sizes"
            )
        absent = self._absent(queue)
        who = f"ranks {', '.join(map(str, absent))} have not come" if absent else "all ranks have come"
        return self._group.timed_out(f"{title}: NCCL has not started within {timeout_s:g} s; {who}", absent)

    def _fail(self, error: DistError) -> None:
        """Fail the group with what all ranks fail with: the error of the rank that was first to tell."""
        if not self._told:
            self._told = True
            error = self._notices.publish(error)
        self._group.fail(error)
        with self._lock:
            self._error = self._error or error

    def _give_up(self, error: DistError) -> None:
        """Tell the threads that wait here, then the peers, then NCCL."""
        for queue in self._group.queues():
            for work in queue.works():
                if not work.poll():  # what the device has done stays done, also if the group fails later
                    work.end(error)
        if not self._told:
            self._told = True
            self._notices.publish(error)
        # At the same time: an abort that waits for the peers' must not keep the other queues from being aborted.
        together((queue.name, queue.abort) for queue in self._group.queues())
