"""The server of a `TCPStore`: one thread, one table, and the requests that wait for a key to change."""

from __future__ import annotations

import heapq
import math
import os
import secrets
import threading
import weakref
from collections import Counter
from time import monotonic
from typing import Any

from rankwise.errors import DistStoreError, ProtocolError
from rankwise.store import operations, wire
from rankwise.store.guard import Keys
from rankwise.store.limits import MAX_KEYS
from rankwise.store.listening import Listener
from rankwise.store.memory import Table
from rankwise.store.operations import Missing

__all__ = ["PRIVATE_URL", "StoreServer"]

#: Where clients in the server's own process reach it; only those that share its context can.
PRIVATE_URL = "inproc://store"
_ZAP_URL = "inproc://zeromq.zap.01"

#: A client has one request at a time on each connection.
_MAX_WAITING_PER_CONNECTION = 8
_MAX_WAITING = 64 << 10
_MAX_TOTAL_NBYTES = 1 << 30
#: Requests that are taken before a look at the clock.
_BATCH = 256

#: How long the last replies may take to leave: who has been answered must hear it, even if the store closes then.
_LINGER_MS = 500
#: How long a connection may take to prove itself.
_HANDSHAKE_MS = 5000
_QUEUED_MESSAGES = 64

_servers: weakref.WeakSet[StoreServer] = weakref.WeakSet()


class _BoundedTable(Table):
    """A table that refuses to grow without end."""

    def __init__(self) -> None:
        super().__init__()
        #: Tells this table from that of a server that takes its place.
        self.identity = secrets.token_bytes(16)
        self._nbytes = 0

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        if self.peek(key) == expected:
            if expected is None and desired is not None and len(self.values) >= MAX_KEYS:
                raise DistStoreError(f"the store is full: it has {MAX_KEYS} keys")
            nbytes = self._nbytes + len(desired or b"") - len(expected or b"")
            if nbytes > max(self._nbytes, _MAX_TOTAL_NBYTES):
                raise DistStoreError(f"the store is full: its values take {self._nbytes} bytes")
            self._nbytes = nbytes
        return super().swap(key, expected, desired)


class _Waiter:
    """A request that is not answered yet."""

    def __init__(self, client: bytes, request: wire.Request) -> None:
        self.client = client
        self.number = request.number
        self.patient = request.wait_s is not None
        #: What to do when the key has changed.
        self.operation, self.args = request.operation, tuple(request.args)
        self.until = monotonic() + (request.wait_s or 0.0)
        #: Whether it is among those that wait for a key; whether its time is watched.
        self.waiting = self.timed = False
        self.key = ""

    def __lt__(self, other: _Waiter) -> bool:
        return self.until < other.until


class StoreServer:
    """Answers the clients that come to a listening socket, and those that share its context.

    Args:
        context: The ZeroMQ context; the server's thread ends before it does.
        listener: Where to listen.
        keys: What clients prove themselves by; None lets everyone in.
    """

    def __init__(self, context: Any, listener: Listener, keys: Keys | None) -> None:
        self._context, self._keys = context, keys
        self._stop_word = secrets.token_bytes(16)
        self._stopping = False
        self._table = _BoundedTable()
        #: The requests that wait for each key, in the order they came.
        self._waiting: dict[str, dict[_Waiter, None]] = {}
        self._waiting_of: Counter[bytes] = Counter()
        self._active = 0
        self._timers: list[_Waiter] = []
        self._open(listener)
        self._descriptor = listener.descriptor
        _servers.add(self)
        self.thread = threading.Thread(target=self._serve, name="rankwise store", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Answer what has come, then end. Not for the server's own thread."""
        import zmq

        _servers.discard(self)
        with self._context.socket(zmq.DEALER) as knock:
            knock.linger = 0
            knock.connect(PRIVATE_URL)
            knock.send(self._stop_word)
            self.thread.join()

    def drop_in_child(self) -> None:
        """Close a forked child's copy of the listening socket, lest it keeps the port when the server has ended."""
        os.close(self._descriptor)

    # ------------------------------------------------------------------ sockets

    def _open(self, listener: Listener) -> None:
        import zmq

        # Before the listening one: from its first moment on, it has to be guarded.
        self._porter: Any = None
        if self._keys is not None:
            self._client_key = self._keys.client_key()
            self._porter = self._context.socket(zmq.REP)
            self._porter.linger = 0
            self._porter.bind(_ZAP_URL)
        socket = self._socket = self._context.socket(zmq.ROUTER)
        socket.linger = _LINGER_MS
        socket.maxmsgsize = wire.MAX_FRAME_NBYTES
        socket.sndhwm = socket.rcvhwm = _QUEUED_MESSAGES
        socket.handshake_ivl = _HANDSHAKE_MS
        socket.router_mandatory = True  # a reply that reaches nobody is an error, not lost
        socket.bind(PRIVATE_URL)
        if self._keys is not None:
            self._keys.guard_server(socket)
        listener.hand_over(socket)

    def _serve(self) -> None:
        import zmq

        poller = zmq.Poller()
        for socket in (self._socket, self._porter):
            if socket is not None:
                poller.register(socket, zmq.POLLIN)
        try:
            while not self._stopping:
                ready = dict(poller.poll(self._patience_ms()))
                if self._porter in ready:
                    self._admit()
                self._take_requests()
                self._expire()
        finally:
            self._socket.close()
            if self._porter is not None:
                self._porter.close()

    def _admit(self) -> None:
        """Tell ZeroMQ whether a client may come in (its authentication protocol, RFC 27)."""
        version, number, *_, mechanism, key = self._porter.recv_multipart()
        known = mechanism == b"CURVE" and secrets.compare_digest(key, self._client_key)
        verdict = (b"200", b"OK") if known else (b"400", b"unknown key")
        self._porter.send_multipart([version, number, *verdict, b"", b""])

    def _take_requests(self) -> None:
        import zmq

        for _ in range(_BATCH):
            try:
                client, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if frames == [self._stop_word]:
                self._stopping = True
            else:
                self._handle(client, frames)

    def _reply(self, client: bytes, number: int, status: int, value: Any) -> bool:
        """Send a reply; tell whether there is somebody to get it."""
        import zmq

        try:
            frames = wire.to_frames(wire.encode_reply(number, status, value))
            self._socket.send_multipart([client, *frames], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    # ------------------------------------------------------------------ requests

    def _handle(self, client: bytes, frames: list[bytes]) -> None:
        try:
            request = wire.decode_request(wire.from_frames(frames))
        except ProtocolError as error:
            self._reply(client, 0, wire.PROTOCOL_ERROR, str(error))
            return
        self._attempt(_Waiter(client, request))
        self._wake()

    def _attempt(self, waiter: _Waiter) -> None:
        """Carry out a request; if it cannot be yet, let it wait or tell so."""
        client, number = waiter.client, waiter.number
        try:
            result = waiter.operation(self._table, *waiter.args)
        except DistStoreError as error:
            self._reply(client, number, wire.STORE_ERROR, str(error))
            return
        except Exception as error:
            # A guest has written nonsense to where the store keeps its own values; that must not end the server.
            self._reply(client, number, wire.STORE_ERROR, f"{waiter.operation.__name__} failed: {error}")
            return
        if not isinstance(result, Missing):
            if not self._reply(client, number, wire.OK, result) and waiter.operation is operations.queue_pop:
                operations.queue_return(self._table, waiter.args[0], result)
            return
        if result.operation is not None:
            waiter.operation, waiter.args = result.operation, result.args
        if not waiter.patient:
            self._reply(client, number, wire.MISSING, result.key)
        elif waiter.until <= monotonic():
            self._refuse(waiter)
        else:
            self._put_off(waiter, result.key)

    def _put_off(self, waiter: _Waiter, key: str) -> None:
        """Let a request wait for a key to change, or for its time to pass."""
        if self._waiting_of[waiter.client] >= _MAX_WAITING_PER_CONNECTION or self._active >= _MAX_WAITING:
            text = "too many requests are waiting"
            self._reply(waiter.client, waiter.number, wire.STORE_ERROR, text)
            return
        self._count(waiter, 1)
        self._waiting.setdefault(key, {})[waiter] = None
        waiter.key = key
        if not waiter.timed:
            waiter.timed = True
            heapq.heappush(self._timers, waiter)

    def _count(self, waiter: _Waiter, change: int) -> None:
        waiter.waiting = change > 0
        self._active += change
        self._waiting_of[waiter.client] += change
        if not self._waiting_of[waiter.client]:
            del self._waiting_of[waiter.client]

    def _wake(self) -> None:
        """Look again at the requests that wait for a key that has changed."""
        while self._table.changed:
            changed, self._table.changed = self._table.changed, set()
            for key in changed:
                for waiter in self._waiting.pop(key, ()):
                    self._count(waiter, -1)
                    self._attempt(waiter)

    # ------------------------------------------------------------------ time

    def _patience_ms(self) -> int | None:
        """Return how long to sleep until the next request's time is up; None for ever."""
        if len(self._timers) > 2 * self._active + _BATCH:
            self._timers = [waiter for waiter in self._timers if waiter.waiting]
            heapq.heapify(self._timers)
        while self._timers and not self._timers[0].waiting:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return math.ceil(1000 * min(max(0.0, self._timers[0].until - monotonic()), 3600.0))

    def _expire(self) -> None:
        """Answer the requests whose time is up."""
        now = monotonic()
        while self._timers and self._timers[0].until <= now:
            waiter = heapq.heappop(self._timers)
            if waiter.waiting:
                self._waiting[waiter.key].pop(waiter)
                if not self._waiting[waiter.key]:
                    del self._waiting[waiter.key]
                self._count(waiter, -1)
                self._refuse(waiter)
        self._wake()

    def _refuse(self, waiter: _Waiter) -> None:
        """Tell a client that it has waited in vain."""
        lacking = operations.LACKING[waiter.operation](self._table, *waiter.args)
        leave = operations.GIVE_UP.get(waiter.operation)
        last = None if leave is None else leave(self._table, *waiter.args)
        if last is None or isinstance(last, Missing):
            self._reply(waiter.client, waiter.number, wire.LATE, lacking)
        else:
            self._reply(waiter.client, waiter.number, wire.OK, last)


def _after_fork() -> None:
    for server in list(_servers):
        server.drop_in_child()
    _servers.clear()


os.register_at_fork(after_in_child=_after_fork)
