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
from rankwise_nccl.queues.device_stream import settle_on
from rankwise_nccl.queues.queue import CommQueue
from rankwise_nccl.queues.together import together
from rankwise_nccl.queues.works import NcclWork

#: How often the device is looked at: soon after it was given something, later less often.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.5e-3, 20e-3

#: How often NCCL is asked for errors, and the store for notices of the peers, while there is something to wait for.
_INSPECTION_S = 0.04


class _Group(Protocol):
    failure: DistError | None

    def queues(self) -> Sequence[CommQueue]:
        """Return all queues."""

    def fail(self, error: DistError) -> DistError:
        """Make the group unusable; return what it fails with."""

    def give_up_for(self, error: DistError) -> DistError:
        """Make the group unusable for what was met here, whatever others say; return what it fails with."""

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
        whom: Tells which ranks a work waits for.
    """

    def __init__(
        self, group: _Group, notices: Notices, name: str, whom: Callable[[NcclWork], Sequence[int] | None]
    ) -> None:
        self._group, self._notices, self._name, self._whom = group, notices, name, whom
        self._wake = _Bell()
        self._lock = threading.Lock()
        #: Held by whoever fails the group, so that a second error waits for what the first has come to.
        self._failing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._idle = False
        self._stopping = False
        self._error: DistError | None = None
        #: Whether the peers know of the end of the group, and whether one of them has told this rank.
        self._told = self._heard = False
        self._inspected = 0.0
        self._settled = False

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

    def fail(self, error: DistError) -> DistError:
        """Fail the group with what this rank has met, or with what a rank has told that was first; return that.

        Any thread may call it; one that only wants the group to end calls the group's own, which asks nobody.
        """
        with self._failing:
            agreed = self._agreed(error)
            if agreed is error and not self._heard and not isinstance(error, DistTimeoutError):
                agreed = self._group.give_up_for(error)
            else:
                agreed = self._group.fail(agreed)
            with self._lock:
                self._error = self._error or agreed
        return agreed

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
                self.fail(translate(error, self._name))
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
        swept, late = False, []
        for queue in self._group.queues():
            self._settle_on(queue)
            swept |= queue.sweep()
            for work in queue.works():
                if work.number is not None and work.deadline.remaining() < work.deadline.timeout_s / 2:
                    self._notices.waits(work.number)
                if work.deadline.expired() and not work.ask():
                    late.append(work)
        if late:
            raise self._late(min(late, key=lambda work: work.deadline.at_s))
        if monotonic() - self._inspected > _INSPECTION_S:
            self._inspect()
            self._inspected = monotonic()
        return swept

    def _settle_on(self, queue: CommQueue) -> None:
        """Choose a device before the first question: this thread begins with one that may be no business of ours."""
        if not self._settled:
            self._settled = True
            settle_on(queue.api, queue.device)

    def _inspect(self) -> None:
        for queue in self._group.queues():
            queue.check()
        heard = self._notices.hear()
        if heard is not None:
            self._told = self._heard = True
            raise heard

    def _late(self, work: NcclWork) -> DistTimeoutError:
        missing = self._whom(work)
        text = f"{work.title}: timed out: not done within {work.deadline.timeout_s:g} s"
        if missing:
            return self._group.timed_out(f"{text}, waiting for {_named(missing)}", missing)
        if work.queue.comm is None:
            return self._group.timed_out(f"{text}: NCCL has not started")
        known = ", though all ranks have called it; perhaps not with the same sizes"
        return self._group.timed_out(text if missing is None else text + known)

    def _agreed(self, error: DistError) -> DistError:
        """Tell the peers, unless they have told; return what they have been told first."""
        if self._told:
            return error
        self._told = True
        return self._notices.publish(error)

    def _give_up(self, error: DistError) -> None:
        """Tell the threads that wait here, then the peers, then NCCL."""
        for queue in self._group.queues():
            for work in queue.works():
                if not work.look():  # what the device has done stays done, also if the group fails later
                    work.end(error)
        with self._failing:
            self._agreed(error)
        # At the same time: an abort that waits for the peers' must not keep the other queues from being aborted.
        together((queue.name, queue.abort) for queue in self._group.queues())


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
