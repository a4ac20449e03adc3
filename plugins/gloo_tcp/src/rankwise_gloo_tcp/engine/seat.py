"""The seat of an engine: whoever waits moves everything forward.

A thread that waits for a request takes the seat and moves everything that can be moved until its own request has ended;
other threads wait for the seat or for their request. While requests are pending that nobody waits for, a thread of the
engine's own takes the seat whenever it is free (`helper`). So a synchronous call is never handed from one thread to
another, and an asynchronous one makes progress while the caller computes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_ident
from time import monotonic
from typing import Protocol

from rankwise.backends import MAX_TAG
from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.patience import Look, Patience
from rankwise_gloo_tcp.engine.request import Request

__all__ = ["TICK_S", "Mover", "Seat"]

TICK_S = 0.25
_REACH_AFTER_S = 0.05
#: A thread that works for callers which compute meanwhile sleeps until longer messages come.
_BRIEF_NBYTES = 64 << 10


class Mover(Protocol):
    """What there is to move, for whoever has the seat."""

    def may_have_news(self, request: Request) -> bool:
        """Tell whether it makes sense to look at what brings a request. Needs no lock."""

    def look_at(self, request: Request) -> bool:
        """Take in what has come for a request; false if no connection is known to bring it. The lock is held."""

    def moves_by_looking(self) -> bool:
        """Tell whether there is news whenever `may_have_news` says so, as a look at memory can tell."""

    def before_sleep(self, timeout_s: float) -> float:
        """Do what needs no lock, and return for how long the loop may sleep at the most."""

    def after_sleep(self) -> None:
        """Do what is to be done from time to time. The lock is held."""

    def without_lock(self) -> None:
        """Do what takes long and needs no lock."""

    def reach(self, rank: int | None) -> None:
        """Connect to whom a receive is waiting for, so that its death is noticed."""

    def has_news(self) -> bool:
        """Tell whether somebody is to be told something without the lock."""

    def settle(self) -> None:
        """Tell it."""

    def describe(self, rank: int | None) -> str:
        """Return what a rank is called."""


class Seat:
    """Who moves the messages of one engine, and the lock of all that is moved.

    The lock guards all state of the engine: this object's, the peers', the inbox, the outbox, every connection. Who has
    the seat polls without the lock and takes it to handle what has come.

    Attributes:
        holder: Which thread has the seat; 0 for none.
        callers: How many threads are in a wait, or take in news.
        last_drive: When a caller has last left the seat.
        changed: Told when a request has ended or the seat is free, if somebody waits for that.
    """

    #: Compiled messages look at what is in a slot without a look-up.
    __slots__ = ("__dict__", "callers", "holder")

    def __init__(self, lock: threading.Lock, loop: Loop, mover: Mover) -> None:
        self.lock = lock
        self.changed = threading.Condition(lock)
        self.patience = Patience()
        #: Tells whether the calling thread works for callers that compute meanwhile.
        self.in_background: Callable[[], bool] = lambda: False
        self.holder = self.callers = self.followers = 0
        self.last_drive = 0.0
        #: Whether the loop is gone: nobody takes the seat any more.
        self.closed = False
        #: Called by whoever leaves the seat, with the lock held.
        self.on_leaving: Callable[[], object] = lambda: None
        #: Told for how many nanoseconds a wait has had nothing to move, and whether it was for a message.
        self.on_wait: Callable[[int, bool], object] = lambda ns, message: None
        self._idle_s = 0.0
        self._loop, self._mover = loop, mover

    def drive(self, request: Request, timeout_s: float) -> None:
        """Move messages until `request` has ended.

        Raises:
            DistTimeoutError: The time-out has passed.
        """
        mover = self._mover
        began = monotonic()
        at, reach_at = began + timeout_s, began + _REACH_AFTER_S
        looked = slept = False
        idle_s = self._idle_s
        while self._take(request, at, timeout_s):
            try:
                looking = looked = self.patience.spin_s > 0 and self._may_look(request)
                while not request.done and not mover.has_news():
                    looking = looking and self._spin(request)
                    if request.done:
                        break
                    slept = slept or not looking
                    now = monotonic()
                    if now >= at:
                        raise self._late(request, timeout_s)
                    if now >= reach_at:
                        mover.reach(request.peer)
                        reach_at = now + TICK_S
                    self.progress(min(at, reach_at) - now)
            finally:
                self._loop.looking = False
                self.leave()
            # Whoever hears of it may want to wait for something else, and needs the seat for that.
            mover.settle()
        if looked:
            self.patience.learn(monotonic() - began, slept)
        if self._idle_s > idle_s:
            self.on_wait(int((self._idle_s - idle_s) * 1e9), request.tag <= MAX_TAG)
        mover.settle()

    def look(self) -> bool:
        """Take in what has come, without waiting, if nobody else does; false if somebody does."""
        if not self.take_if_free():
            return False
        try:
            self.progress(0.0)
        finally:
            self.leave()
            self._mover.settle()
        return True

    def progress(self, timeout_s: float) -> None:
        """Wait until something can be done, and do it. Only whoever has the seat calls."""
        timeout_s = self._mover.before_sleep(timeout_s)
        if timeout_s > 0:
            asleep_at = monotonic()
            events = self._loop.poll(timeout_s)
            self._idle_s += monotonic() - asleep_at
        else:
            events = self._loop.poll(0)
        with self.lock:
            self._loop.dispatch(events)
            self._mover.after_sleep()
        self._mover.without_lock()

    def take_if_free(self) -> bool:
        """Take the seat unless somebody has it; tell whether the caller has it now."""
        with self.lock:
            if self.closed or not self._is_free():
                return False
            self.sit_down()
        return True

    def sit_down(self) -> None:
        """Take the seat, which is free; the lock is held."""
        self.holder = get_ident()
        self.callers += 1

    def take_for_the_end(self) -> None:
        """Take the seat for good, waiting for whoever has it."""
        with self.lock:
            self.callers += 1
            self.followers += 1
            while not self._is_free():
                self._loop.wake()
                self.changed.wait(0.1)
            self.followers -= 1
            self.holder = get_ident()

    def leave(self) -> None:
        """Give the seat back."""
        with self.lock:
            self.holder = 0
            self.callers -= 1
            self.on_leaving()
            if self.followers:
                self.changed.notify_all()
        self.last_drive = monotonic()

    def _take(self, request: Request, at: float, timeout_s: float) -> bool:
        """Return true with the seat taken, false once the request has ended.

        Raises:
            DistTimeoutError: Neither has happened in time.
        """
        with self.lock:
            self.callers += 1
            self.followers += 1
            try:
                while not request.done:
                    if not self.holder or self._is_free():
                        self.holder = get_ident()
                        return True
                    self._loop.hurry()
                    if not self.changed.wait(at - monotonic()) and monotonic() >= at:
                        self.callers -= 1
                        raise self._late(request, timeout_s)
                self.callers -= 1
                return False
            finally:
                self.followers -= 1

    def _is_free(self) -> bool:
        """Tell whether the caller may take the seat; the lock is held.

        Nobody who has the seat asks for it. If the caller seems to, it was interrupted on its way in or out.
        """
        if self.holder == get_ident():
            self.holder = 0
            self.callers -= 1
        return not self.holder

    def _may_look(self, request: Request) -> bool:
        """Tell whether a wait may look for news before it sleeps, although that takes the interpreter now and then."""
        return len(request.buffer) <= _BRIEF_NBYTES or not self.in_background()

    def _spin(self, request: Request) -> bool:
        """Look at the one connection that matters, for as long as it takes to fall asleep and be woken.

        While something moves, looking goes on; true if it has for so long that other things must have their turn.
        """
        look, known, self._loop.looking = self.patience.look(), True, True
        while known and not request.done and look.goes_on():
            if self._mover.may_have_news(request):
                known = self._glance(request, look)
        self._loop.looking = False
        self._idle_s += look.idle_s
        return look.took_its_time

    def _glance(self, request: Request, look: Look) -> bool:
        before = self._loop.moved_nbytes
        with self.lock:
            known = self._mover.look_at(request)
        self._mover.without_lock()
        if self._mover.moves_by_looking():
            look.memory_moved()
        elif self._loop.moved_nbytes > before:
            look.bytes_moved(self._loop.moved_nbytes - before)
        return known

    def _late(self, request: Request, timeout_s: float) -> DistTimeoutError:
        who = self._mover.describe(request.peer)
        return DistTimeoutError(f"timed out: not done within {timeout_s:g} s, waiting for {who}")
