"""Threads that move messages although no caller waits: one for each engine that needs it, one for all idle engines.

A rank that computes, or waits on another group, still takes in from time to time what its peers send. So a peer that
leaves can hand over its messages, and what this rank has sent makes progress.
"""

from __future__ import annotations

import contextvars
import os
import threading
from threading import get_ident
from time import monotonic
from typing import Any, Protocol

from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.moving import Moving
from rankwise_gloo_tcp.engine.peers import Peers
from rankwise_gloo_tcp.engine.progress import TICK_S, ProgressLock
from rankwise_gloo_tcp.machine.poller import READ, make_poller
from rankwise_gloo_tcp.protocol.inbox import Inbox

__all__ = ["BackgroundWork", "IdlePoller", "ProgressThread", "idle_poller"]


class BackgroundWork:
    """What is to be moved on one engine although no caller waits. All is called with the engine's lock held.

    Attributes:
        pending: How many requests there are that their callers do not wait for.
        linger_until: Until when a rank that has failed stays to tell its peers.
    """

    def __init__(self, peers: Peers, inbox: Inbox) -> None:
        self.pending = 0
        self.linger_until = 0.0
        self._peers, self._inbox = peers, inbox

    def is_pending(self) -> bool:
        """Tell whether there is something to do."""
        if self.pending > 0 or self._inbox.adopting > 0:
            return True
        if self._peers.held_up:
            self._peers.held_up = not self._peers.all_sent
            return self._peers.held_up
        return self.linger_until > monotonic() and not self._peers.all_sent

    def may_be_pending(self) -> bool:
        """Tell whether there may be something to do that no request has announced."""
        return self._peers.held_up or self._inbox.adopting > 0


#: How often the thread checks whether a caller still moves the messages. While one does it checks ever less often, as
#: each check takes the interpreter from the program's threads.
_TICK_S, _LONGEST_TICK_S = 0.001, 0.016
#: After so many ticks without work it sleeps until it is needed.
_TICKS = 20


class ProgressThread:
    """The progress thread of an engine, which is started when it is needed for the first time.

    Args:
        progress_lock: What it acquires when it is free.
        loop: Where it sleeps.
        background: What it is needed for.
        moving: What it moves.
    """

    def __init__(self, progress_lock: ProgressLock, loop: Loop, background: BackgroundWork, moving: Moving) -> None:
        self._progress_lock, self._loop, self._background, self._moving = progress_lock, loop, background, moving
        self._thread: threading.Thread | None = None
        self._ticking = self._napping = self._closed = False

    def wake(self) -> None:
        """See to it that the thread is awake; the lock is held."""
        if self._thread is None:
            # In a copy of the caller's context, so that callbacks find the caller's world.
            serve = contextvars.copy_context().run
            thread = threading.Thread(target=serve, args=(self._serve,), name="rankwise gloo", daemon=True)
            thread.start()
            self._thread, self._ticking = thread, True
        elif not self._ticking or self._napping:
            self._ticking, self._napping = True, False
            self._progress_lock.changed.notify_all()

    def released(self) -> None:
        """Wake the thread if a caller has released the progress lock and left work behind; the lock is held."""
        if not self._ticking and self._background.may_be_pending() and self._background.is_pending():
            self.wake()

    def close(self) -> None:
        """Tell the thread to end; the lock is held."""
        self._closed = True
        self._progress_lock.changed.notify_all()

    def join(self) -> None:
        """Wait until it has ended."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _serve(self) -> None:
        while self._wait_for_the_lock():
            try:
                while self._has_work():
                    self._progress_lock.progress(TICK_S)
            except Exception as error:
                self._moving.broken(self._progress_lock.lock, error)
            finally:
                with self._progress_lock.lock:
                    self._progress_lock.owner, self._loop.helped = 0, False
                    self._progress_lock.changed.notify_all()
                self._moving.settle()

    def _wait_for_the_lock(self) -> bool:
        """Acquire the progress lock once there is work and no caller at it; false at the end."""
        progress_lock, idle, tick_s = self._progress_lock, 0, _TICK_S
        with progress_lock.lock:
            while not self._closed:
                work = self._background.is_pending()
                busy = (
                    progress_lock.callers > 0
                    or progress_lock.owner != 0
                    or monotonic() - progress_lock.last_drive < _TICK_S
                )
                if work and not busy:
                    progress_lock.owner, self._loop.helped = get_ident(), True
                    return True
                idle = 0 if work else idle + 1
                if idle > _TICKS:
                    self._ticking, idle = False, 0
                    progress_lock.changed.wait()
                else:
                    tick_s = min(2 * tick_s, _LONGEST_TICK_S) if busy else _TICK_S
                    self._napping = tick_s > _TICK_S
                    progress_lock.changed.wait(tick_s)
                    self._napping = False
        return False

    def _has_work(self) -> bool:
        if self._progress_lock.callers > 0 or self._closed or self._moving.has_news():
            return False
        return self._background.is_pending()


#: How often the idle poller asks engines for news, which takes less than a microsecond each.
_IDLE_TICK_S = 0.1


class IdleEngine(Protocol):
    """An engine as the idle poller sees it."""

    def is_idle(self, since: float) -> bool:
        """Tell whether no thread has moved its messages since a time."""

    def has_news(self) -> bool:
        """Tell whether there is something to do that no descriptor tells of."""

    def descriptor(self) -> int:
        """Return what can be read while a descriptor of the engine is ready; -1 where there is no such."""

    def look(self) -> bool:
        """Take in what has come, if no other thread does."""

    def broken(self, error: BaseException) -> None:
        """End the group after an error that belongs to no operation."""

    def forked(self) -> None:
        """Close the sockets, in the child of a fork."""


class IdlePoller:
    """The thread of the process that takes in what has come for engines that no thread drives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: With the context and the descriptor of each.
        self._engines: dict[IdleEngine, tuple[contextvars.Context, int]] = {}
        #: Which engines' descriptors are ready, by one call for all of them; made with the first.
        self._poller: Any = None
        self._thread: threading.Thread | None = None
        self._nobody = threading.Event()

    def add(self, engine: IdleEngine) -> None:
        """Look after an engine, in a copy of the caller's context, so that callbacks find the caller's world."""
        with self._lock:
            descriptor = engine.descriptor()
            self._engines[engine] = contextvars.copy_context(), descriptor
            if descriptor >= 0:
                self._poller = self._poller or make_poller()
                self._poller.register(descriptor, READ)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="rankwise gloo idle", daemon=True)
                self._thread.start()

    def remove(self, engine: IdleEngine) -> None:
        """Look after an engine no more."""
        with self._lock:
            _, descriptor = self._engines.pop(engine, (None, -1))
            if descriptor >= 0:
                self._poller.unregister(descriptor)
            if not self._engines:
                self._nobody.set()

    def _serve(self) -> None:
        while True:
            self._nobody.wait(_IDLE_TICK_S)
            with self._lock:
                if not self._engines:
                    if self._poller:
                        self._poller.close()
                    self._thread = self._poller = None
                    self._nobody.clear()
                    return
                self._nobody.clear()
                engines = list(self._engines.items())
                ready = {-1, *(fd for fd, _ in self._poller.poll(0))} if self._poller else {-1}
            since = monotonic() - _IDLE_TICK_S
            for engine, (context, descriptor) in engines:
                if engine.is_idle(since) and (descriptor in ready or engine.has_news()):
                    context.run(_look, engine)
            del engines, engine, context  # else the last ones stay until the next look

    def after_fork(self) -> None:
        """In a child, which has neither the thread nor a use for the engines: close its copies of their sockets.

        Else a peer would not see the end of this process's parent as long as the child lives.
        """
        engines = list(self._engines)
        if self._poller:
            self._poller.close()
        self.__init__()  # type: ignore[misc]
        for engine in engines:
            engine.forked()


def _look(engine: IdleEngine) -> None:
    """Have an engine take in what has come; its own trouble is not that of others."""
    try:
        engine.look()
    except Exception as error:
        engine.broken(error)


#: The one of this process.
idle_poller = IdlePoller()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=idle_poller.after_fork)
