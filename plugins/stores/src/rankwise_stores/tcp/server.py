"""The server of a `TCPStore`: one thread, one table, and the requests that wait for a key to change."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from rankwise.errors import DistStoreError, ProtocolError
from rankwise.stores import MAX_KEYS, Missing, Table, after_fork, operations, start_thread
from rankwise_network.doors import PATIENCE_S
from rankwise_network.secret import same
from rankwise_stores import queues
from rankwise_stores.tcp import wire
from rankwise_stores.tcp.accepting import Accepting, Listener
from rankwise_stores.tcp.guard import Keys
from rankwise_stores.tcp.waiting import MAX_OF_ONE_NBYTES, Assembly, Lent, Unread, Waiter, Waiting, is_large, nbytes_of
from rankwise_stores.tcp.wills import Will, Wills, set_with_will
from rankwise_stores.tcp.zeromq import PRIVATE_URL

_ZAP_URL = "inproc://zeromq.zap.01"

#: Requests that are taken before a look at the clock.
_BATCH = 256

#: What replies wait for that must not be sent before others have been read. It is no key: those are text without this.
_ROOM = "\0\0room for the reply"
#: And what those wait for who count the items of a queue, before its name.
_LEAVING = "\0\0leaving "
#: How long a request waits that asks for an immediate answer.
_ROOM_PATIENCE_S = 60.0
#: How often to look whether those who have something to read are there at all.
_PROBE_S = 0.5

#: How long the last replies may take to leave: who has been answered must hear it, even if the store closes then.
_LINGER_MS = 500
_QUEUED_MESSAGES = 64

_servers: weakref.WeakSet[StoreServer] = weakref.WeakSet()


class StoreServer:
    """Answers the clients that come to a listening socket, and those that share its context.

    Args:
        context: The ZeroMQ context; the server's thread ends before it does.
        listener: Where to listen.
        keys: What clients prove themselves by; None lets everyone in.
    """

    def __init__(self, context: Any, listener: Listener, keys: Keys | None) -> None:
        self._context, self._keys = context, keys
        self._stop_word = os.urandom(16)
        self._stopping = False
        self._table = BoundedTable()
        self.identity = self._table.identity
        self._assembly, self._waiting = Assembly(), Waiting()
        self._unread, self._lent, self._wills = Unread(), Lent(), Wills()
        self._probe_at = 0.0
        #: What those have been told who were woken last, and for which arguments.
        self._told: tuple[tuple[Any, ...], wire.Packed] | None = None
        self._open(listener)
        self.thread = threading.Thread(target=self._serve, name="rankwise store", daemon=True)
        try:
            start_thread(self.thread)
        except BaseException:
            self._accepting.close()
            raise
        _servers.add(self)

    def stop(self) -> None:
        """Answer what has come, then end. Not for the server's own thread."""
        _servers.discard(self)
        self._knock.send(self._stop_word)
        self.thread.join()
        self._knock.close(0)

    def drop_in_child(self) -> None:
        """Close a forked child's copies of the listening socket, which would keep the port after the server."""
        os.close(self._descriptor)
        self._accepting.drop_in_child()

    # ------------------------------------------------------------------ sockets

    def _open(self, listener: Listener) -> None:
        import zmq

        # Before the listening one: from its first moment on, it has to be guarded.
        self._porter: Any = None
        if self._keys is not None:
            self._client_key = self._keys.client_key()
            self._porter = self._context.socket(zmq.REP)
            self._porter.linger = 0
            # opens: nothing, it is a name within the process
            self._porter.bind(_ZAP_URL)
        socket = self._socket = self._context.socket(zmq.ROUTER)
        socket.linger = _LINGER_MS
        socket.maxmsgsize = wire.MAX_FRAME_NBYTES
        socket.sndhwm = socket.rcvhwm = _QUEUED_MESSAGES
        socket.handshake_ivl = int(1000 * PATIENCE_S)
        socket.router_mandatory = True  # a reply that reaches nobody is an error, not lost
        # opens: nothing, it is a name within the process
        socket.bind(PRIVATE_URL)
        # Made now, as there may be no descriptor for it when the end has come.
        self._knock = self._context.socket(zmq.DEALER)
        self._knock.linger = 0
        self._knock.connect(PRIVATE_URL)
        if self._keys is not None:
            self._keys.guard_server(socket)
        self._descriptor = listener.descriptor
        self._accepting = Accepting(socket, listener.descriptor, listener.name)
        try:
            listener.hand_over(socket)
        except BaseException:
            self._accepting.close()
            raise

    def _serve(self) -> None:
        import zmq

        callbacks: dict[Any, Callable[[], None]] = {
            self._socket: self._take_requests,
            self._accepting.monitor: self._count_refused,
        }
        if self._porter is not None:
            callbacks[self._porter] = self._admit
        poller = zmq.Poller()
        for socket in callbacks:
            poller.register(socket, zmq.POLLIN)
        try:
            while not self._stopping:
                for socket, _ in poller.poll(self._patience_ms()):
                    callbacks[socket]()
                self._look_at_the_clock()
        finally:
            self._accepting.close()
            self._socket.close()
            if self._porter is not None:
                self._porter.close()

    def _count_refused(self) -> None:
        self._table.refused += self._accepting.look()

    def _admit(self) -> None:
        """Tell ZeroMQ whether a client may come in (its authentication protocol, RFC 27)."""
        version, number, *_, mechanism, key = self._porter.recv_multipart()
        known = mechanism == b"CURVE" and same(key, self._client_key)
        verdict = (b"200", b"OK") if known else (b"400", b"unknown key")
        self._porter.send_multipart([version, number, *verdict, b"", b""])

    # ------------------------------------------------------------------ requests

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
                self._take(client, frames)

    def _take(self, client: bytes, frames: list[bytes]) -> None:
        """Take what a client has sent: a piece of a request, or the receipt of a reply."""
        try:
            if len(frames) != 1:
                raise ProtocolError("a request comes in messages of one frame each")
            kind, data = frames[0][:1], frames[0][1:]
            if kind == wire.Piece.RECEIPT:
                queue = self._lent.has_left(data)
                if queue is not None:
                    self._count_items(queue)
                elif self._unread.confirm(client, data):
                    self._make_room()
                return
            if kind not in (wire.Piece.LAST, wire.Piece.MORE):
                raise ProtocolError("what has come is no piece of a request")
            whole = self._assembly.add(client, data, kind == wire.Piece.MORE)
            if whole is None:
                return
            waiter = Waiter(client, wire.decode_request(whole), len(whole))
        except ProtocolError as error:
            self._send(client, 0, wire.PROTOCOL_ERROR, str(error))
            return
        self._attempt(waiter)
        self._wake()

    def _attempt(self, waiter: Waiter) -> None:
        """Carry out a request; if it cannot be yet, let it wait or tell so."""
        if waiter.operation is queues.queue_release:
            # A client that gives an item back by a connection that it has left may still wait for it there.
            self._waiting.withdraw(queues.queue_key(waiter.args[0]), lambda other: other.args[:2] == waiter.args[:2])
        elif waiter.operation is queues.queue_len and self._lent.is_leaving(waiter.args[0]):
            waiter.until = math.inf
            self._put_off(waiter, _LEAVING + waiter.args[0])
            return
        try:
            result = self._result_of(waiter)
        except DistStoreError as error:
            self._answer(waiter, wire.STORE_ERROR, str(error))
            return
        except Exception as error:
            # A guest has written nonsense to where the store keeps its own values; that must not end the server.
            self._answer(waiter, wire.STORE_ERROR, f"{waiter.operation.__name__} failed: {error}")
            return
        if not isinstance(result, Missing):
            receipt = b""
            if waiter.operation is set_with_will:
                self._wills.note(waiter.client, Will(*waiter.args))
            elif waiter.operation is queues.queue_pop:
                # Before it is sent: if the client turns out to be gone, the item returns.
                self._lent.lend(waiter.client, *waiter.args[:2])
            elif waiter.operation in (queues.queue_confirm, queues.queue_release):
                receipt = self._settle(waiter, result)
            if not self._deliver(waiter, result, receipt) and waiter.operation is queues.queue_pop:
                queue, token = waiter.args[:2]
                self._lent.settle(token)
                queues.queue_release(self._table, queue, token, None)
            return
        if result.operation is not None:
            waiter.operation, waiter.args = result.operation, result.args
        if not waiter.patient:
            self._answer(waiter, wire.MISSING, result.key)
        elif waiter.until <= monotonic():
            self._refuse(waiter)
        else:
            self._put_off(waiter, result.key)

    def _result_of(self, waiter: Waiter) -> Any:
        """Carry out an operation; what all get who have met is looked up and encoded once."""
        if waiter.operation is not operations.arrived:
            return waiter.operation(self._table, *waiter.args)
        if self._told is None or self._told[0] != waiter.args or self._table.changed:
            result = operations.arrived(self._table, *waiter.args)
            if isinstance(result, Missing):
                return result
            self._told = waiter.args, wire.packed(result, nbytes_of(result))
        return self._told[1]

    def _settle(self, waiter: Waiter, result: Any) -> bytes:
        """Note that an item has been confirmed or given back; return the receipt by which its client knows so."""
        queue, token = waiter.args[:2]
        self._lent.settle(token)
        if waiter.operation is queues.queue_confirm and result:
            self._lent.leave(waiter.client, queue, token)
            return bytes(token)
        self._count_items(queue)
        return b""

    def _count_items(self, queue: str) -> None:
        """Look again at the questions how long a queue is, unless an item of it is still leaving."""
        for waiter in self._waiting.take(_LEAVING + queue):
            self._attempt(waiter)

    def _put_off(self, waiter: Waiter, key: str) -> None:
        if not self._waiting.add(waiter, key):
            self._answer(waiter, wire.STORE_ERROR, "too many requests are waiting")

    def _wake(self) -> None:
        """Look again at the requests that wait for a key that has changed."""
        while self._table.changed:
            changed, self._table.changed, self._told = self._table.changed, set(), None
            for key in changed:
                for waiter in self._waiting.take(key):
                    self._attempt(waiter)

    # ------------------------------------------------------------------ replies

    def _deliver(self, waiter: Waiter, result: Any, receipt: bytes = b"") -> bool:
        """Send a result, now or when there is room for it; tell whether there is somebody to get it."""
        if is_large(result):
            nbytes = nbytes_of(result)
            if not self._unread.fits_client(waiter.client, nbytes):
                text = f"this client has not read replies of {MAX_OF_ONE_NBYTES} bytes"
                self._answer(waiter, wire.STORE_ERROR, text)
                return False
            if not self._unread.fits_all(nbytes):
                waiter.reply_nbytes = nbytes
                self._await_room(waiter)
                return False
            receipt = self._unread.add(waiter.client, nbytes)
        return self._send(waiter.client, waiter.number, wire.OK, result, receipt)

    def _await_room(self, waiter: Waiter) -> None:
        if not waiter.patient and waiter.key != _ROOM:
            waiter.until = monotonic() + _ROOM_PATIENCE_S
        self._put_off(waiter, _ROOM)

    def _make_room(self) -> None:
        """Look again at the replies that wait until others have been read: as many as there is room for now."""
        while (waiter := self._waiting.first(_ROOM)) is not None and self._unread.fits_all(waiter.reply_nbytes):
            self._waiting.remove(waiter)
            self._attempt(waiter)
        self._wake()

    def _answer(self, waiter: Waiter, status: int, value: Any) -> None:
        self._send(waiter.client, waiter.number, status, value)

    def _send(self, client: bytes, number: int, status: int, value: Any, receipt: bytes = b"") -> bool:
        """Send a message to a client; tell whether it is there, and has read enough of what was sent before."""
        import zmq

        try:
            frames = wire.to_frames(wire.encode_reply(number, status, value, receipt))
            self._socket.send_multipart([client, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self._unread.confirm(client, receipt)
            if error.errno == zmq.EHOSTUNREACH:
                self._unread.forget(client)
                self._take_back(self._lent.take_of(client))
                self._wills.carry_out(self._table, client)
            return False
        return True

    def _take_back(self, loans: Sequence[tuple[str, bytes]]) -> None:
        for queue, token in loans:
            queues.queue_release(self._table, queue, token, None)

    # ------------------------------------------------------------------ time

    def _owes_a_look(self) -> bool:
        """Tell whether something depends on whether clients are there."""
        return self._waiting.has(_ROOM) or bool(self._lent) or bool(self._wills)

    def _patience_ms(self) -> int | None:
        patience_s = self._waiting.patience_s()
        if self._owes_a_look():
            patience_s = _PROBE_S if patience_s is None else min(patience_s, _PROBE_S)
        return None if patience_s is None else math.ceil(1000 * min(patience_s, 3600.0))

    def _look_at_the_clock(self) -> None:
        """Answer the requests whose time is up, and see that clients are there that owe a receipt or have a will."""
        for waiter in self._waiting.take_late():
            self._refuse(waiter)
        if self._owes_a_look() and monotonic() >= self._probe_at:
            self._probe_at = monotonic() + _PROBE_S
            for client in self._lent.clients().union(self._unread.clients(), self._wills.clients()):
                self._send(client, wire.PROBE, wire.OK, None)
            self._take_back(self._lent.take_late())
            for queue in self._lent.forget_late():
                self._count_items(queue)
            self._make_room()
        self._wake()

    def _refuse(self, waiter: Waiter) -> None:
        """Tell a client that it has waited in vain."""
        if waiter.key == _ROOM:
            text = "there is no room for the reply, as other clients do not read theirs"
            self._answer(waiter, wire.STORE_ERROR, text)
            return
        lacking = operations.LACKING[waiter.operation](self._table, *waiter.args)
        leave = operations.GIVE_UP.get(waiter.operation)
        last = None if leave is None else leave(self._table, *waiter.args)
        if last is None or isinstance(last, Missing):
            self._answer(waiter, wire.LATE, lacking)
        else:
            self._answer(waiter, wire.OK, last)


def _after_fork() -> None:
    for server in list(_servers):
        server.drop_in_child()
    _servers.clear()


after_fork(_after_fork)


# ------------------ the table of a `TCPStore`'s server: keys and values, and the bound on what they may take

_MAX_TOTAL_NBYTES = 1 << 30
#: What a key takes beside its text and its value.
_ENTRY_NBYTES = 200


class BoundedTable(Table):
    """A table that refuses to grow without end."""

    def __init__(self) -> None:
        super().__init__()
        #: Tells this table from that of a server that takes its place.
        self.identity = os.urandom(16)
        self._nbytes = 0

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        if self.peek(key) == expected:
            if expected is None and desired is not None and len(self.values) >= MAX_KEYS:
                raise DistStoreError(f"the store is full: it has {MAX_KEYS} keys")
            nbytes = self._nbytes + _nbytes_of(key, desired) - _nbytes_of(key, expected)
            if nbytes > max(self._nbytes, _MAX_TOTAL_NBYTES):
                raise DistStoreError(f"the store is full: its keys and values take {self._nbytes} bytes")
            self._nbytes = nbytes
        return super().swap(key, expected, desired)


def _nbytes_of(key: str, value: bytes | None) -> int:
    return 0 if value is None else _ENTRY_NBYTES + len(key.encode()) + len(value)
