"""Small messages that go out, or are taken in, by the caller's own thread at once, without a request.

Each way tries, and where anything is unusual says that it has done nothing: then the message goes the long way, and
both are the same bytes.
"""

from __future__ import annotations

from time import monotonic

from rankwise.backends import MAX_TAG, Array, as_bytes
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.frames import message_head
from rankwise_gloo_tcp.transport.connection import Connection
from rankwise_gloo_tcp.transport.pipe import Pipe

__all__ = ["AT_ONCE_NBYTES", "AtOnce"]

#: The longest message that goes over a socket as one piece of bytes, and is looked for without a request.
AT_ONCE_NBYTES = 8 << 10


class AtOnce:
    """The shortest ways of one engine's messages."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._rank = engine, engine.rank
        self._lock, self._fate, self._seat, self._moving = engine.lock, engine.fate, engine.seat, engine.moving
        self._peers, self._mail, self._helper = engine.peers, engine.mail, engine.helper
        self._inbox, self._dtypes = engine.mail.inbox, engine.mail.dtypes
        self._windows, self._is_clear = engine.mail.outbox.windows, engine.mail.inbox.matching.is_clear

    def send(self, array: Array, to: int, tag: int) -> Request | bool:
        """Send a small message; false if it must take the long way, or a request if not all of it has left."""
        if to == self._rank:
            return False
        data, nbytes, dtype = as_bytes(array), array.nbytes, self._dtypes.mark(array.dtype)
        if type(self._peers.all[to].connection) is Pipe:
            return self._send_by_pipe(data, to, tag, dtype)
        if nbytes > AT_ONCE_NBYTES or self._dtypes.unusual:
            return False
        return self.post(message_head(tag, nbytes, dtype), bytes(data), to, tag)

    def receive(self, array: Array, source: int, tag: int) -> bool:
        """Receive a small message that is there, or comes while this looks for it; else the long way must be taken."""
        if source == self._rank or not self._seat.patience.spin_s:
            return False
        pipe = self._peers.all[source].connection
        if type(pipe) is Pipe:
            return self._receive_by_pipe(pipe, tag, self._dtypes.wanted(array.dtype), as_bytes(array))
        if array.nbytes > AT_ONCE_NBYTES:
            return False
        head = message_head(tag, array.nbytes, self._dtypes.mark(array.dtype))
        return self.take(head, as_bytes(array), source, tag)

    # ------------------------------------------------------------------ over sockets

    def post(self, head: bytes, data: bytes, to: int, tag: int) -> Request | bool:
        """Send a small message over a connection at once.

        Returns:
            True if all of it has left. If it has in part, the request to wait for: what is completed here must need
            this rank no more. False if it must take the long way.
        """
        rest = None
        nbytes, window, peer = len(data), self._windows[to], self._peers.all[to]
        with self._lock:
            connection = peer.connection
            if type(connection) is not Connection or self._is_over or peer.gone is not None or not window.fits(nbytes):
                return False
            window.spend(nbytes)
            if peer.owed_nbytes:
                self._mail.pay(peer)
            if not connection.post(head, data):
                window.forget(nbytes)
                return False
            if self._peers.held_up and not connection.idle:
                rest = Request(self._engine, memoryview(data), to, tag)
                connection.end_with_rest(rest)
        if self._moving.deferred:
            self._engine.settle()
        return rest or True

    def take(self, head: bytes, room: memoryview, source: int, tag: int) -> bool:
        """Receive a message of just this header that is there, or comes while this looks for it.

        Where it returns false, nothing is lost: the long way must be taken.

        Args:
            head: The header.
            room: Where the message goes, which fills it.
            source: The sender.
            tag: The tag.
        """
        connection, seat = self._peers.all[source].connection, self._seat
        if type(connection) is not Connection or not seat.patience.spin_s:
            return False
        with self._lock:
            if seat.holder or self._is_over:
                return False
            taken = self._take_from(connection, head, room, tag)
            if taken is None:
                seat.sit_down()
        if taken is None:
            try:
                taken = self._look_at(connection, head, room, tag)
            finally:
                seat.leave()
        if self._moving.settled or self._moving.deferred:
            self._engine.settle()
        return taken

    def _look_at(self, connection: Connection, head: bytes, room: memoryview, tag: int) -> bool:
        """Look for a message for as long as a wait looks before it sleeps."""
        lock, patience = self._lock, self._seat.patience
        began, taken = monotonic(), None
        until = began + patience.first_s
        while taken is None and (now := monotonic()) < until:
            with lock:
                taken = self._take_from(connection, head, room, tag)
        self._seat.on_wait(int((now - began) * 1e9), tag <= MAX_TAG)
        if taken:
            patience.learn(now - began, False)
        return bool(taken)

    def _take_from(self, connection: Connection, head: bytes, room: memoryview, tag: int) -> bool | None:
        # Other threads may take in messages too, with the lock alone: then the one that is looked for may be here.
        if not self._is_clear(connection.peer, tag):
            return False
        taken = connection.take(head, room)
        if taken:
            self._inbox.taken_at_once(connection.peer, len(room), tag > MAX_TAG)
            if self._peers.held_up:  # by the credit for it
                self._helper.left_alone()
        return taken

    # ------------------------------------------------------------------ through memory

    def _send_by_pipe(self, data: memoryview, to: int, tag: int, dtype: int) -> bool:
        window, peer = self._windows[to], self._peers.all[to]
        with self._lock:
            pipe = peer.connection
            if type(pipe) is not Pipe or self._is_over or peer.gone is not None:
                return False
            if self._dtypes.unusual or not window.fits(len(data)) or not pipe.post(tag, dtype, data):
                return False
            window.spend(len(data))
        if self._moving.deferred:
            self._engine.settle()
        return True

    def _receive_by_pipe(self, pipe: Pipe, tag: int, dtype: int, room: memoryview) -> bool:
        with self._lock:
            if self._seat.holder or self._is_over or not self._is_clear(pipe.peer, tag):
                return False
            self._seat.sit_down()
        try:
            return self._look_into(pipe, tag, dtype, room)
        finally:
            self._seat.leave()

    def _look_into(self, pipe: Pipe, tag: int, dtype: int, room: memoryview) -> bool:
        spin_s = self._seat.patience.spin_s
        now = began = monotonic()
        while True:
            for _ in range(20):
                if pipe.has_news():
                    if now > began:
                        self._seat.on_wait(int((now - began) * 1e9), True)
                    return self._take_out(pipe, tag, dtype, room)
            now = monotonic()
            if now > began + spin_s:
                self._seat.on_wait(int((now - began) * 1e9), True)
                return False

    def _take_out(self, pipe: Pipe, tag: int, dtype: int, room: memoryview) -> bool:
        with self._lock:
            nbytes = pipe.take(tag, dtype, room)
            if nbytes >= 0:
                self._inbox.taken_at_once(pipe.peer, nbytes, in_step=False)
        return nbytes >= 0

    @property
    def _is_over(self) -> bool:
        """Whether nothing new can succeed."""
        return self._fate.sealed or self._engine.leaving
