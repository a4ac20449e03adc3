"""The seat of an engine: whoever waits moves everything forward.

A thread that waits for a request takes the seat and moves everything that can be moved until its own request has ended;
other threads wait for the seat or for their request. While requests are pending that nobody waits for, a thread of the
engine's own takes the seat whenever it is free. So a synchronous call is never handed from one thread to another, and
an asynchronous one makes progress while the caller computes.
"""

from __future__ import annotations

import contextvars
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from time import monotonic

from rankwise.errors import DistError, DistTimeoutError
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.machine.poller import READ, make_poller

__all__ = ["TICK_S", "Handler", "Seat"]

TICK_S = 0.25
_REACH_AFTER_S = 0.05
#: A wait that takes more than so many times the longest look halves the next one, down to this part.
_WORTH, _LEAST_SPIN = 1.5, 1 / 16
#: Longer messages are slept for by whoever works for callers that compute meanwhile.
_BRIEF_NBYTES = 64 << 10
#: What moves this many bytes a second is looked at for as long as it does; what is slower is slept for.
_FAST = 1e9
#: Steady traffic must not keep time-outs and the deaths of third ranks from being noticed.
_LONGEST_SPIN_S = 0.02
#: How often the thread looks whether anybody still moves the messages; while somebody does ever more seldom, as each
#: look takes the interpreter from the program's threads.
_THREAD_TICK_S, _LONGEST_TICK_S = 0.001, 0.016
_THREAD_TICKS = 20

Handler = Callable[[int], None]


class Seat:
    """The loop of one engine, and the lock of all that it moves.

    Args:
        names: The global rank of each rank.
        timeout_s: How long a wait without a time-out of its own may take.
        on_failure: Called once, without the lock, when the group has failed.
    """

    def __init__(self, names: tuple[int, ...], timeout_s: float, on_failure: Callable[[DistError], object]) -> None:
        self.names, self.timeout_s = names, timeout_s
        self.lock = threading.Lock()
        self.settled: deque[Request] = deque()
        self.failure: DistError | None = None
        #: For how long a wait looks at its connection before it sleeps.
        self.spin_s = 0.0
        self._spin_part = 1.0
        #: Tells whether the calling thread works for callers that compute meanwhile.
        self.in_background: Callable[[], bool] = lambda: False
        #: Whether there is news whenever `_may_have_news` says so, as a look at memory can tell.
        self._moves_by_looking = False
        #: How many bytes sockets have taken and brought, and whether somebody looks for more without sleeping.
        self.moved_nbytes = 0
        self.looking = False
        self._on_failure = on_failure
        self._unreported: DistError | None = None
        #: Whether the group is about to fail: what all ranks raise is being found out.
        self._failing = False
        #: Requests that end when it does.
        self._orphans: list[Request] = []
        self._changed = threading.Condition(self.lock)
        #: Which thread has the seat; 0 for none.
        self._seated = 0
        self._thread_seated = False
        self._callers = self._followers = self._pending = 0
        self._last_drive = 0.0
        #: Whether something may have to be sent that nobody waits for.
        self._held_up = False
        self._thread: threading.Thread | None = None
        self._ticking = self._napping = self._closed = False
        self._poller = make_poller()
        self._handlers: dict[int, Handler] = {}
        self._masks: dict[int, int] = {}
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)
        self._poller.register(self._wake_read, READ)
        self._handlers[self._wake_read] = self._woken

    def drive(self, request: Request, timeout_s: float) -> None:
        """Move messages until `request` has ended.

        Raises:
            DistTimeoutError: The time-out has passed.
        """
        began = monotonic()
        at, reach_at = began + timeout_s, began + _REACH_AFTER_S
        looked = slept = False
        while self._take_seat(request, at):
            try:
                looking = looked = self.spin_s > 0 and self._may_look(request)
                while not request.done and not self._has_news():
                    looking = looking and self._spin(request)
                    if request.done:
                        break
                    slept = slept or not looking
                    now = monotonic()
                    if now >= at:
                        raise self._late(request, timeout_s)
                    if now >= reach_at:
                        self._reach(request.peer)
                        reach_at = now + TICK_S
                    self._progress(min(at, reach_at) - now)
            finally:
                self.looking = False
                self._leave_seat()
            # Whoever hears of it may want to wait for something else, and needs the seat for that.
            self.settle()
        if looked:
            self._learn(monotonic() - began, slept)
        self.settle()

    def look(self) -> None:
        """Take in what has come, without waiting, if nobody else does."""
        with self.lock:
            if self._closed or not self._is_free():
                return
            self._seated = get_ident()
            self._callers += 1
        try:
            self._progress(0.0)
        finally:
            self._leave_seat()
            self.settle()

    def ended(self, request: Request) -> None:
        """Note that a request has ended; the lock is held."""
        if request.watched:
            self._pending -= 1
        if request.has_promise():
            self.settled.append(request)
        if self._followers:
            self._changed.notify_all()

    def settle(self) -> None:
        """Do what must be done without the lock: tell futures, and the communicator of a failure."""
        while self.settled:
            try:
                request = self.settled.popleft()
            except IndexError:
                break
            request.settle()
        if self._unreported is not None:
            error, self._unreported = self._unreported, None
            self._on_failure(error)

    def _has_news(self) -> bool:
        return bool(self.settled) or self._unreported is not None

    # ------------------------------------------------------------------ the seat

    def _take_seat(self, request: Request, at: float) -> bool:
        """Return true with the seat taken, false once the request has ended.

        Raises:
            DistTimeoutError: Neither has happened in time.
        """
        began = monotonic()
        with self.lock:
            self._callers += 1
            self._followers += 1
            try:
                while not request.done:
                    if not self._seated or self._is_free():
                        self._seated = get_ident()
                        return True
                    if self._thread_seated:
                        self._wake()
                    if not self._changed.wait(at - monotonic()) and monotonic() >= at:
                        self._callers -= 1
                        raise self._late(request, at - began)
                self._callers -= 1
                return False
            finally:
                self._followers -= 1

    def _is_free(self) -> bool:
        """Tell whether the caller may take the seat; the lock is held.

        Nobody who has the seat asks for it. If the caller seems to, it was interrupted on its way in or out.
        """
        if self._seated == get_ident():
            self._seated = 0
            self._callers -= 1
        return not self._seated

    def _may_look(self, request: Request) -> bool:
        """Tell whether a wait may look for news before it sleeps, although that takes the interpreter now and then."""
        return len(request.buffer) <= _BRIEF_NBYTES or not self.in_background()

    def _spin(self, request: Request) -> bool:
        """Look at the one connection that matters, for as long as it takes to fall asleep and be woken.

        While something moves, looking goes on; true if it has for so long that other things must have their turn.
        """
        now = monotonic()
        until, limit = now + self.spin_s * self._spin_part, now + _LONGEST_SPIN_S
        moved, known, self.looking = False, True, True
        while known and not request.done and monotonic() < until:
            if not self._may_have_news(request):
                continue
            before = self.moved_nbytes
            with self.lock:
                known = self._look_at(request)
            self._without_lock()
            if self._moves_by_looking:
                moved, until = True, min(monotonic() + self.spin_s, limit)
            elif self.moved_nbytes > before:
                moved, until = True, min(until + (self.moved_nbytes - before) / _FAST, limit)
        self.looking = False
        return moved and until == limit

    def _learn(self, took_s: float, slept: bool) -> None:
        """Look for longer from now on if that would have saved this wait from sleeping, and less long if it would not.

        Where others want the processor, waits are long, and looks make the system let this process wait for longer.
        """
        if slept and took_s > _WORTH * self.spin_s:
            self._spin_part = max(_LEAST_SPIN, self._spin_part / 2)
        else:
            self._spin_part = min(1.0, 2 * self._spin_part)

    def _leave_seat(self) -> None:
        with self.lock:
            self._seated = 0
            self._callers -= 1
            if self._held_up and not self._ticking and self._has_work():
                self._need_thread()
            if self._followers:
                self._changed.notify_all()
        self._last_drive = monotonic()

    def _progress(self, timeout_s: float) -> None:
        """Wait until something can be done, and do it. Only whoever has the seat calls."""
        timeout_s = self._next_look(timeout_s)
        events = self._poller.poll(timeout_s if timeout_s > 0 else 0)
        with self.lock:
            for fd, event in events:
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(event)
            self._after_look()
        self._without_lock()

    def _late(self, request: Request, timeout_s: float) -> DistTimeoutError:
        who = "any rank" if request.peer is None else f"rank {self.names[request.peer]}"
        return DistTimeoutError(f"not done within {timeout_s:g} s, waiting for {who}")

    def _wake(self) -> None:
        with suppress(OSError):  # full: it is being woken already
            os.write(self._wake_write, b"w")

    def _woken(self, event: int) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 512)

    # ------------------------------------------------------------------ sockets

    def watch_fd(self, sock: socket.socket, mask: int, handler: Handler) -> None:
        """Call `handler` when a socket is ready."""
        fd = sock.fileno()
        if fd in self._masks:
            self._poller.modify(fd, mask)
        else:
            self._poller.register(fd, mask)
        self._masks[fd], self._handlers[fd] = mask, handler

    def unwatch(self, sock: socket.socket) -> None:
        """Stop calling."""
        fd = sock.fileno()
        if self._masks.pop(fd, None) is not None:
            self._handlers.pop(fd, None)
            self._poller.unregister(fd)

    # ------------------------------------------------------------------ the thread

    def held_up(self) -> None:
        """Hear that something waits for room."""
        self._held_up = True

    def _issued(self, request: Request) -> None:
        """Count a request that its caller may leave alone."""
        if request.done:
            return
        request.watched = True
        self._pending += 1
        self._need_thread()

    def _need_thread(self) -> None:
        if self._thread is None:
            # In a copy of the caller's context, so that callbacks find the caller's world.
            serve = contextvars.copy_context().run
            thread = threading.Thread(target=serve, args=(self._serve,), name="rankwise gloo", daemon=True)
            thread.start()
            self._thread, self._ticking = thread, True
        elif not self._ticking or self._napping:
            self._ticking, self._napping = True, False
            self._changed.notify_all()

    def _serve(self) -> None:
        idle, tick_s = 0, _THREAD_TICK_S
        while True:
            with self.lock:
                if self._closed:
                    return
                work = self._has_work()
                busy = self._callers > 0 or self._seated or monotonic() - self._last_drive < _THREAD_TICK_S
                if not work or busy:
                    idle = 0 if work else idle + 1
                    if idle > _THREAD_TICKS:
                        self._ticking, idle = False, 0
                        self._changed.wait()
                    else:
                        tick_s = min(2 * tick_s, _LONGEST_TICK_S) if busy else _THREAD_TICK_S
                        self._napping = tick_s > _THREAD_TICK_S
                        self._changed.wait(tick_s)
                        self._napping = False
                    continue
                self._seated, self._thread_seated = get_ident(), True
            idle, tick_s = 0, _THREAD_TICK_S
            try:
                while self._on_duty():
                    self._progress(TICK_S)
            finally:
                with self.lock:
                    self._seated, self._thread_seated = 0, False
                    self._changed.notify_all()
                self.settle()

    def _on_duty(self) -> bool:
        return self._callers == 0 and not self._closed and self._has_work() and not self._has_news()

    # ------------------------------------------------------------------ what the rest of the engine does

    def _has_work(self) -> bool:
        """Tell whether something is to be moved although nobody waits for it."""
        raise NotImplementedError

    def _may_have_news(self, request: Request) -> bool:
        """Tell whether it makes sense to look at what brings a request. Needs no lock."""
        raise NotImplementedError

    def _look_at(self, request: Request) -> bool:
        """Take in what has come for a request; false if no connection is known to bring it. The lock is held."""
        raise NotImplementedError

    def _next_look(self, timeout_s: float) -> float:
        """Do what needs no lock, and return for how long the loop may sleep at the most."""
        raise NotImplementedError

    def _after_look(self) -> None:
        """Do what is to be done from time to time. The lock is held."""
        raise NotImplementedError

    def _without_lock(self) -> None:
        """Do what needs no lock."""
        raise NotImplementedError

    def _reach(self, rank: int | None) -> None:
        """Connect to whom a receive is waiting for, so that its death is noticed."""
        raise NotImplementedError
