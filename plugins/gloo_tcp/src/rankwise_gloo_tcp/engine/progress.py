"""Who moves the messages of an engine: the progress lock, and how long its owner spins before it sleeps.

A thread that waits for a request acquires the progress lock and moves everything that can be moved until its own
request has ended; other threads wait for the lock or for their request. While requests are pending that no thread waits
for, the engine's progress thread acquires it whenever it is free (`progress_thread`). So a synchronous call is never
handed from one thread to another, and an asynchronous one makes progress while the caller computes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_ident
from time import monotonic
from typing import Protocol

from rankwise.backends import MAX_TAG, only_waited, ring
from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.state import ProgressState

TICK_S = 0.25
_REACH_AFTER_S = 0.05
#: A thread that works for callers which compute meanwhile sleeps until longer messages come.
_BRIEF_NBYTES = 64 << 10


class Mover(Protocol):
    """What the owner of the progress lock moves."""

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
        """Connect to the peer that a receive is waiting for, so that its death is noticed."""

    def has_news(self) -> bool:
        """Tell whether futures or the communicator are to be told something without the lock."""

    def settle(self) -> None:
        """Tell it."""

    def describe(self, rank: int | None) -> str:
        """Return what a rank is called."""


class Changed:
    """Threads that wait for a change, each by a bell of its own. All is called with the lock held.

    Nobody waits within the lock, as with a `Condition`: a thread that is interrupted as it lets the lock go would let
    it go once more, when another may have it.
    """

    __slots__ = ("_bells", "_lock")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._bells: list[threading.Lock] = []

    def bell(self) -> threading.Lock:
        """Return what can be acquired once something has changed; it is forgotten afterwards."""
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)
        return bell

    def forget(self, bell: threading.Lock | None) -> None:
        """Ring a bell no more."""
        if bell in self._bells:
            self._bells.remove(bell)

    def notify_all(self) -> None:
        """Have all who wait look."""
        ring(self._bells)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait on a thread of the engine's own, which nothing interrupts."""
        bell = self.bell()
        self._lock.release()
        bell.acquire(timeout=-1 if timeout_s is None else timeout_s)
        self._lock.acquire()
        self.forget(bell)


class ProgressLock(ProgressState):
    """The right to move the messages of one engine, and the engine's lock.

    The engine's lock guards all of its state: this object's, the peers', the inbox, the outbox, every connection. The
    owner of the progress lock polls without the engine's lock and takes it to handle what has come.

    Attributes:
        owner: The thread that has it; 0 for none.
        callers: How many threads are in a wait, or take in news.
        last_drive: When a caller has last released it.
        pending: How many requests there are that their callers do not wait for.
        ticks: Whether the engine's thread looks for them by itself, again and again.
        changed: Notified when a request has ended or the progress lock is free, if a thread waits for that.
    """

    __slots__ = (
        *("_idle_s", "_loop", "_mover", "changed", "closed", "in_background", "lock"),
        *("on_release", "on_wait", "resting", "spin_policy"),
    )

    def __init__(self, lock: threading.Lock, loop: Loop, mover: Mover) -> None:
        self.lock = lock
        self.changed = Changed(lock)
        self.spin_policy = SpinPolicy()
        #: Tells whether the calling thread works for callers that compute meanwhile.
        self.in_background: Callable[[], bool] = _never
        self.owner = self.callers = self.followers = self.pending = 0
        self.ticks = False
        #: Whether the owner sleeps, and changes nothing.
        self.resting = False
        self.last_drive = 0.0
        #: Whether the loop is gone: no thread acquires it any more.
        self.closed = False
        #: Called by the thread that releases it, with the engine's lock held.
        self.on_release: Callable[[], object] = _nothing
        #: Told for how many nanoseconds a wait has had nothing to move, and whether it was for a message.
        self.on_wait: Callable[[int, bool], object] = _nothing
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
        while self._acquire(request, at, timeout_s):
            try:
                looking = looked = self.spin_policy.spin_s > 0 and self._may_look(request)
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
            except BaseException as error:
                if self.resting:
                    only_waited(error)
                raise
            finally:
                self._loop.looking = False
                self.release()
            # A callback may wait for something else, and needs the progress lock for that.
            mover.settle()
        if looked:
            self.spin_policy.learn(monotonic() - began, slept)
        if self._idle_s > idle_s:
            self.on_wait(int((self._idle_s - idle_s) * 1e9), request.tag <= MAX_TAG)
        mover.settle()

    def look(self) -> bool:
        """Take in what has come, without waiting; false if another thread has the progress lock."""
        if not self.try_acquire():
            return False
        try:
            self.progress(0.0)
        finally:
            self.release()
            self._mover.settle()
        return True

    def progress(self, timeout_s: float) -> None:
        """Wait until something can be done, and do it. Only the owner calls."""
        timeout_s = self._mover.before_sleep(timeout_s)
        if timeout_s > 0:
            asleep_at = monotonic()
            self.resting = True
            events = self._loop.poll(timeout_s)
            self.resting = False
            self._idle_s += monotonic() - asleep_at
        else:
            events = self._loop.poll(0)
        with self.lock:
            self._loop.dispatch(events)
            self._mover.after_sleep()
        self._mover.without_lock()

    def try_acquire(self) -> bool:
        """Acquire it unless another thread has it; tell whether the caller has it now."""
        with self.lock:
            if self.closed or not self._is_free():
                return False
            self.acquire_free()
        return True

    def acquire_free(self) -> None:
        """Acquire it while it is free; the engine's lock is held."""
        self.owner = get_ident()
        self.callers += 1

    def acquire_for_good(self) -> None:
        """Acquire it and never give it to another caller, waiting for its owner."""
        with self.lock:
            self.callers += 1
            self.followers += 1
        bell = None
        while True:
            with self.lock:
                self.changed.forget(bell)
                if self._is_free():
                    self.followers -= 1
                    self.owner = get_ident()
                    return
                self._loop.wake()
                bell = self.changed.bell()
            bell.acquire(timeout=0.1)

    def release(self) -> None:
        """Release it."""
        with self.lock:
            self.owner = 0
            self.callers -= 1
            self.resting = False
            self.on_release()
            if self.followers:
                self.changed.notify_all()
        self.last_drive = monotonic()

    def _acquire(self, request: Request, at: float, timeout_s: float) -> bool:
        """Return true with the progress lock acquired, false once the request has ended.

        Raises:
            DistTimeoutError: Neither has happened in time.
        """
        bell = None
        while True:
            with self.lock:
                if bell is None:
                    self.callers += 1
                else:
                    self.followers -= 1
                    self.changed.forget(bell)
                if request.done:
                    self.callers -= 1
                    return False
                if not self.owner or self._is_free():
                    self.owner = get_ident()
                    return True
                if monotonic() >= at:
                    self.callers -= 1
                    raise self._late(request, timeout_s)
                self._loop.hurry()
                bell = self.changed.bell()
                self.followers += 1
            self._follow(bell, at)

    def _follow(self, bell: threading.Lock, at: float) -> None:
        """Wait until a request has ended or the progress lock is free, or until a time."""
        try:
            bell.acquire(timeout=max(0.0, at - monotonic()))
        except BaseException as error:
            with self.lock:
                self.callers -= 1
                self.followers -= 1
                self.changed.forget(bell)
            only_waited(error)
            raise

    def _is_free(self) -> bool:
        """Tell whether the caller may acquire it; the engine's lock is held.

        The owner never asks for it. If the caller seems to be the owner, it was interrupted on its way in or out.
        """
        if self.owner == get_ident():
            self.owner = 0
            self.callers -= 1
        return not self.owner

    def _may_look(self, request: Request) -> bool:
        """Tell whether a wait may look for news before it sleeps, although that takes the interpreter now and then."""
        return len(request.buffer) <= _BRIEF_NBYTES or not self.in_background()

    def _spin(self, request: Request) -> bool:
        """Look at the one connection that matters, for as long as it takes to fall asleep and be woken.

        While something moves, looking goes on; true if it has for so long that other things must have their turn.
        """
        spin, known, self._loop.looking = self.spin_policy.begin(), True, True
        while known and not request.done and spin.goes_on():
            if self._mover.may_have_news(request):
                known = self._glance(request, spin)
        self._loop.looking = False
        self._idle_s += spin.idle_s
        return spin.must_yield

    def _glance(self, request: Request, spin: Spin) -> bool:
        before = self._loop.moved_nbytes
        with self.lock:
            known = self._mover.look_at(request)
        self._mover.without_lock()
        if self._mover.moves_by_looking():
            spin.memory_moved()
        elif self._loop.moved_nbytes > before:
            spin.bytes_moved(self._loop.moved_nbytes - before)
        return known

    def _late(self, request: Request, timeout_s: float) -> DistTimeoutError:
        who = self._mover.describe(request.peer)
        return DistTimeoutError(f"timed out: not done within {timeout_s:g} s, waiting for {who}")


#: A wait that takes more than so many times the longest spin halves the next one, down to this part.
_WORTH, _LEAST_SPIN = 1.5, 1 / 16
#: While this many bytes a second move, polling goes on; for anything slower the wait sleeps.
_FAST = 1e9
#: Steady traffic must not hide time-outs and the deaths of third ranks.
LONGEST_SPIN_S = 0.02


class SpinPolicy:
    """How long waits may spin; 0 where ranks share processors."""

    __slots__ = ("_part", "spin_s")

    def __init__(self) -> None:
        self.spin_s = 0.0
        self._part = 1.0

    @property
    def first_s(self) -> float:
        """How long a wait spins before anything has moved."""
        return self.spin_s * self._part

    def begin(self) -> Spin:
        """Begin to spin."""
        return Spin(self.spin_s, self.first_s)

    def learn(self, took_s: float, slept: bool) -> None:
        """Spin for longer from now on if that would have saved this wait from sleeping, and less long if it would not.

        Where others want the processor, waits are long, and looks make the system let this process wait for longer.
        """
        if slept and took_s > _WORTH * self.spin_s:
            self._part = max(_LEAST_SPIN, self._part / 2)
        else:
            self._part = min(1.0, 2 * self._part)


class Spin:
    """One wait that polls. While something moves, it goes on."""

    def __init__(self, spin_s: float, first_s: float) -> None:
        now = self._began = monotonic()
        self._spin_s = spin_s
        self._until, self._limit = now + first_s, now + LONGEST_SPIN_S
        self._moved = False
        #: How long it was in vain until something moved, or still is.
        self.idle_s = 0.0

    def goes_on(self) -> bool:
        """Tell whether there is time left."""
        now = monotonic()
        if not self._moved:
            self.idle_s = now - self._began
        return now < self._until

    def memory_moved(self) -> None:
        """Note that something has come through shared memory."""
        self._moved, self._until = True, min(monotonic() + self._spin_s, self._limit)

    def bytes_moved(self, nbytes: int) -> None:
        """Note that something has come through a socket."""
        self._moved, self._until = True, min(self._until + nbytes / _FAST, self._limit)

    @property
    def must_yield(self) -> bool:
        """Whether it has gone on for so long that other things must have their turn."""
        return self._moved and self._until == self._limit


def _nothing(*told: object) -> None:
    """Do nothing."""


def _never() -> bool:
    """Say no."""
    return False
