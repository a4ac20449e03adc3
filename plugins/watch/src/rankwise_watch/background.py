"""One thread beside the program, which does what it is asked to, serves descriptors, and does its rounds."""

from __future__ import annotations

import contextvars
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TypeVar

from rankwise.errors import DistError
from rankwise.observing import Ending, start_thread

T = TypeVar("T")

#: How long the end waits for the thread, which has a last word for the store.
_END_S = 0.5


class Background:
    """The thread. A caller that asks for something waits for so long and no longer; nothing raises into the program.

    Args:
        first_s: When the first round is.
        every_s: How long after a round the next one is.
    """

    def __init__(self, first_s: float, every_s: float) -> None:
        self._first_s, self._every_s = first_s, every_s
        self._jobs: deque[Callable[[], object]] = deque()
        #: Jobs of the thread's own, and when it is to do them.
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._at_end: list[Callable[[], object]] = []
        self._stopping = False
        #: Whether the thread runs, which does not tell by itself: an interrupt has it taken for one that has ended.
        self._running = False
        self._round_at = self._busy_s = 0.0
        self._pid = os.getpid()
        # Sockets, as there are systems on which one cannot wait for a pipe.
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        run = contextvars.copy_context().run  # callbacks of works find the caller's world
        self._thread = threading.Thread(target=run, args=(self._run,), name="rankwise watch", daemon=True)

    # ------------------------------------------------------------------ what others bring

    def round(self, late_s: float) -> None:
        """Do what is to be done every so often; `late_s` is by how much that is late, but for jobs."""
        raise NotImplementedError

    def farewell(self) -> None:
        """Do what is to be done last."""
        raise NotImplementedError

    # ------------------------------------------------------------------ for any thread

    def do(self, job: Callable[[], object], at_once: bool = True) -> None:
        """Have the thread do something, now or when it next has something else to do."""
        if self._thread is threading.current_thread():
            guarded(job)
        elif not self._stopping and self._pid == os.getpid():
            self._jobs.append(job)
            if at_once:
                self._wake()

    def ask(self, job: Callable[[], T], limit_s: float) -> T | None:
        """Have the thread find something out; None if it takes too long, or fails."""
        answer = Ending()  # and no event, whose lock an interrupt may leave held, and this thread stuck at it

        def find_out() -> None:
            try:
                answer.tell(job())
            finally:
                answer.tell()

        if not self._running or self._pid != os.getpid():
            return None
        self.do(find_out)
        if self._thread is not threading.current_thread():
            answer.wait(limit_s)
        found: T | None = answer.value
        return found

    def stop(self) -> None:
        """End the thread; one that is stuck in a store is left alone."""
        if self._pid != os.getpid():
            return
        self._stopping = True
        self._wake()
        if self._thread is not threading.current_thread():
            self._thread.join(_END_S)

    # ------------------------------------------------------------------ on the thread

    def begin(self) -> None:
        """Start the thread."""
        self._running = True
        try:
            start_thread(self._thread)
        except BaseException:
            self._running = False
            self._close()
            raise

    def hear(self, descriptor: int, job: Callable[[], object]) -> None:
        """Do something once when a descriptor can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, job)

    def forget(self, descriptor: int) -> None:
        """Stop serving a descriptor."""
        with suppress(KeyError):
            self._selector.unregister(descriptor)

    def at_end(self, job: Callable[[], object]) -> None:
        """Do something when the thread ends."""
        self._at_end.append(job)

    def after(self, delay_s: float, job: Callable[[], object]) -> None:
        """Do something a while later, unless the end comes first."""
        self._later.append((monotonic() + delay_s, job))

    def advance(self, by_s: float) -> None:
        """Have the next round so much sooner; called in a round."""
        self._round_at -= by_s

    def _run(self) -> None:
        try:
            self._live()
        finally:
            self._running = False

    def _live(self) -> None:
        self._round_at = monotonic() + min(self._first_s, self._every_s)
        while not self._stopping:
            self._rest(min([self._round_at, *(at for at, _ in self._later)]) - monotonic())
            self._work_off()
            late_s = monotonic() - self._round_at
            if late_s >= 0 and not self._stopping:
                # What jobs took is not this process's lateness: they wait for the store, of which its answers tell.
                late_s, self._busy_s = max(0.0, late_s - self._busy_s), 0.0
                guarded(lambda late_s=late_s: self.round(late_s))  # type: ignore[misc]
                self._round_at = max(self._round_at + self._every_s, monotonic())
        self._work_off()
        guarded(self.farewell)
        self._give_back()

    def _rest(self, timeout_s: float) -> None:
        timeout = None if timeout_s == float("inf") else max(0.0, timeout_s)
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                with suppress(OSError):
                    self._woken.recv(512)
            else:
                self._selector.unregister(key.fd)
                self._take(key.data)

    def _work_off(self) -> None:
        now = monotonic()
        due = [job for at, job in self._later if at <= now]
        self._later = [(at, job) for at, job in self._later if at > now]
        for job in due:
            self._take(job)
        while self._jobs:
            self._take(self._jobs.popleft())

    def _take(self, job: Callable[[], object]) -> None:
        began = monotonic()
        guarded(job)
        self._busy_s += monotonic() - began

    def _wake(self) -> None:
        with suppress(OSError):  # full, or given back: it needs no waking
            self._waker.send(b"w")

    def _give_back(self) -> None:
        for job in self._at_end:
            guarded(job)
        self._at_end.clear()
        self._later.clear()  # which may call this object: the two would stay until the garbage collector comes
        self._close()

    def _close(self) -> None:
        """Give the descriptors back."""
        self._selector.close()
        self._woken.close()
        self._waker.close()


def guarded(step: Callable[[], object]) -> None:
    """Do something that may fail."""
    try:
        step()
    except DistError:
        pass  # the store stands still, perhaps for a moment, or is gone
    except Exception as error:  # a flaw in here must not become the program's
        import logging

        logging.getLogger("rankwise").warning("the watcher has met an error, and goes on", exc_info=error)
