"""The progress thread of an engine: it has the seat while requests are pending that nobody waits for."""

from __future__ import annotations

import contextvars
import threading
from threading import get_ident
from time import monotonic

from rankwise_gloo_tcp.engine.duty import Duty
from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.moving import Moving
from rankwise_gloo_tcp.engine.seat import TICK_S, Seat

__all__ = ["Helper"]

#: How often it checks whether anybody still moves the messages. While somebody does it checks ever less often, as each
#: check takes the interpreter from the program's threads.
_TICK_S, _LONGEST_TICK_S = 0.001, 0.016
#: After so many ticks without work it sleeps until it is needed.
_TICKS = 20


class Helper:
    """A thread that is started when it is needed for the first time.

    Args:
        seat: The seat that it takes when it is free.
        loop: Where it sleeps.
        duty: What calls it.
        moving: What it moves.
    """

    def __init__(self, seat: Seat, loop: Loop, duty: Duty, moving: Moving) -> None:
        self._seat, self._loop, self._duty, self._moving = seat, loop, duty, moving
        self._thread: threading.Thread | None = None
        self._ticking = self._napping = self._closed = False

    def need(self) -> None:
        """See to it that the thread is awake; the lock is held."""
        if self._thread is None:
            # In a copy of the caller's context, so that callbacks find the caller's world.
            serve = contextvars.copy_context().run
            thread = threading.Thread(target=serve, args=(self._serve,), name="rankwise gloo", daemon=True)
            thread.start()
            self._thread, self._ticking = thread, True
        elif not self._ticking or self._napping:
            self._ticking, self._napping = True, False
            self._seat.changed.notify_all()

    def left_alone(self) -> None:
        """Hear that somebody leaves the seat; the lock is held."""
        if not self._ticking and self._duty.is_unheard_of() and self._duty.calls():
            self.need()

    def close(self) -> None:
        """Tell the thread to end; the lock is held."""
        self._closed = True
        self._seat.changed.notify_all()

    def join(self) -> None:
        """Wait until it has ended."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _serve(self) -> None:
        while self._wait_for_the_seat():
            try:
                while self._on_duty():
                    self._seat.progress(TICK_S)
            finally:
                with self._seat.lock:
                    self._seat.holder, self._loop.helped = 0, False
                    self._seat.changed.notify_all()
                self._moving.settle()

    def _wait_for_the_seat(self) -> bool:
        """Take the seat once there is work and nobody else at it; false at the end."""
        seat, idle, tick_s = self._seat, 0, _TICK_S
        with seat.lock:
            while not self._closed:
                work = self._duty.calls()
                busy = seat.callers > 0 or seat.holder != 0 or monotonic() - seat.last_drive < _TICK_S
                if work and not busy:
                    seat.holder, self._loop.helped = get_ident(), True
                    return True
                idle = 0 if work else idle + 1
                if idle > _TICKS:
                    self._ticking, idle = False, 0
                    seat.changed.wait()
                else:
                    tick_s = min(2 * tick_s, _LONGEST_TICK_S) if busy else _TICK_S
                    self._napping = tick_s > _TICK_S
                    seat.changed.wait(tick_s)
                    self._napping = False
        return False

    def _on_duty(self) -> bool:
        if self._seat.callers > 0 or self._closed or self._moving.has_news():
            return False
        return self._duty.calls()
