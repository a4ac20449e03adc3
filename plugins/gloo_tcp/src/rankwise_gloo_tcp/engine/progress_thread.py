"""The thread of an engine that moves messages while requests are pending for which no caller waits."""

from __future__ import annotations

import contextvars
import threading
from threading import get_ident
from time import monotonic

from rankwise.backends import start_thread
from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.moving import Moving
from rankwise_gloo_tcp.engine.peers import Peers
from rankwise_gloo_tcp.engine.progress import TICK_S, ProgressLock
from rankwise_gloo_tcp.protocol.inbox import Inbox


class BackgroundWork:
    """What is to be moved on one engine although no caller waits. All is called with the engine's lock held.

    Attributes:
        linger_until: Until when a rank that has failed stays to tell its peers.
    """

    __slots__ = ("_inbox", "_peers", "_progress_lock", "linger_until")

    def __init__(self, progress_lock: ProgressLock, peers: Peers, inbox: Inbox) -> None:
        self.linger_until = 0.0
        self._progress_lock, self._peers, self._inbox = progress_lock, peers, inbox

    def is_pending(self) -> bool:
        """Tell whether there is something to do."""
        if self._progress_lock.pending > 0 or self._inbox.adopting > 0:
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

    __slots__ = ("_background", "_closed", "_loop", "_moving", "_napping", "_progress_lock", "_thread")

    def __init__(self, progress_lock: ProgressLock, loop: Loop, background: BackgroundWork, moving: Moving) -> None:
        self._progress_lock, self._loop, self._background, self._moving = progress_lock, loop, background, moving
        self._thread: threading.Thread | None = None
        self._napping = self._closed = False

    def wake(self, now: bool = True) -> None:
        """See to it that the thread is awake, now or when its nap ends; the lock is held."""
        if self._thread is None:
            # In a copy of the caller's context, so that callbacks find the caller's world.
            serve = contextvars.copy_context().run
            thread = threading.Thread(target=serve, args=(self._serve,), name="rankwise gloo", daemon=True)
            start_thread(thread)
            self._thread, self._progress_lock.ticks = thread, True
        elif not self._progress_lock.ticks or (now and self._napping):
            self._progress_lock.ticks, self._napping = True, False
            self._progress_lock.changed.notify_all()

    def released(self) -> None:
        """Wake the thread if a caller has released the progress lock and left work behind; the lock is held."""
        if not self._progress_lock.ticks and self._background.may_be_pending() and self._background.is_pending():
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
                    progress_lock.ticks, idle = False, 0
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
