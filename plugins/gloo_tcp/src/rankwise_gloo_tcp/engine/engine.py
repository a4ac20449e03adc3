"""The engine of one group on one rank: its loop, its connections and its messages, and how all of that ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from threading import get_ident
from time import monotonic

from rankwise.errors import DistError, DistTimeoutError
from rankwise_gloo_tcp.engine.links import Setting
from rankwise_gloo_tcp.engine.seat import TICK_S
from rankwise_gloo_tcp.engine.traffic import Traffic
from rankwise_gloo_tcp.protocol.frames import Header, Kind, notice
from rankwise_gloo_tcp.transport.connection import Connection

__all__ = ["Engine"]

_LINGER_S = 5.0
#: For how long a rank that leaves waits until what it has sent is on its peers' machines, and how often it looks.
_CONFIRM_S, _GLANCE_S = 1.0, 0.001


class Engine(Traffic):
    """All that one rank of one group does over connections."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        #: Called with the first failure, with the lock held, to tell those whom no connection reaches.
        self.on_abort: Callable[[DistError], object] | None = None
        self._linger_until = 0.0

    def abort(self, error: DistError) -> None:
        """End everything that is pending with `error`, and tell the peers."""
        with self.lock:
            self._abort(error)
        self.settle()

    def close(self) -> None:
        """Deliver what was sent, say good-bye, and give everything back."""
        deadline = monotonic() + (min(self.timeout_s, _LINGER_S) if self.failure else self.timeout_s)
        with self.lock:
            if self._closed:
                return
            if self.failure is None:
                for peer in self.peers:
                    if peer.connection is not None:
                        peer.connection.send(Header(Kind.GOODBYE))
        try:
            self._flush(deadline)
        finally:
            self._give_back()

    def _has_work(self) -> bool:
        if self._pending > 0:
            return True
        if self._held_up:
            self._held_up = not self._all_sent()
            return self._held_up
        return self._linger_until > monotonic() and not self._all_sent()

    def _abort(self, error: DistError) -> None:
        if self.failure is not None or self._closed:
            return
        self.failure = error
        requests = [*self._drop_receives(), *self._outgoing.values(), *self._orphans]
        self._outgoing.clear()
        self._orphans.clear()
        text = notice(error, self.names[self.rank])
        if self.on_abort is not None:
            self.on_abort(error)
        for peer in self.peers:
            requests += [*peer.backlog, *(request for _, _, request, _ in peer.frames if request is not None)]
            peer.backlog.clear()
            peer.frames.clear()
            if peer.connection is not None:
                requests += peer.connection.abort(Header(Kind.ABORT, length=len(text)), text)
        for request in requests:
            request.end(error)
        if not self._all_sent():
            self._linger_until = monotonic() + _LINGER_S
            self._need_thread()
        self._changed.notify_all()
        self._wake()

    def _flush(self, deadline: float) -> None:
        """Wait until everything has left."""
        with self.lock:
            self._callers += 1
            self._followers += 1
            while not self._is_free():
                self._wake()
                self._changed.wait(0.1)
            self._followers -= 1
            self._seated = get_ident()
        try:
            while not self._all_sent() or any(peer.frames for peer in self.peers):
                left = deadline - monotonic()
                if left <= 0:
                    if self.failure is None:
                        raise DistTimeoutError("the group was closed before all that was sent had left")
                    return
                self._progress(min(left, TICK_S))
                self.settle()
            # A connection that is closed resets the peer's when that writes, and what is still on its way is lost.
            until = min(deadline, monotonic() + _CONFIRM_S)
            while self.failure is None and self._unconfirmed() and monotonic() < until:
                self._progress(_GLANCE_S)
                self.settle()
        finally:
            self._leave_seat()

    def _unconfirmed(self) -> bool:
        connections = [peer.connection for peer in self.peers]
        return any(type(connection) is Connection and connection.unconfirmed for connection in connections)

    def _give_back(self) -> None:
        with self.lock:
            self._closed = True
            self._changed.notify_all()
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self.lock:
            for guest in list(self._guests):
                self.guest_left(guest)
            for peer in self.peers:
                self._drop_dial(peer)
                if peer.connection is not None:
                    peer.connection.receive()  # unread bytes would turn the end into a reset
                    if peer.connection is not None:
                        peer.connection.close()
                    peer.connection = None
            for rank in list(self._processes):
                self._forget_process(rank)
            for listener in self._listeners:
                self.unwatch(listener)
                listener.close()
            self._poller.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            # What is called from here holds the communicator, which holds this: only the garbage collector would come.
            self._handlers.clear()
            self.pipes = []
            self._given_up, self._on_failure = _nothing, _unheard


def _nothing() -> None:
    """Say that no rank has given the group up."""


def _unheard(error: DistError) -> None:
    """Take a failure that comes after the end."""
