"""A client's connection to the server of a `TCPStore`, for one request at a time."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from rankwise.errors import DistNetworkError, DistTimeoutError, ProtocolError
from rankwise.stores import Deadline, heed, held, in_words
from rankwise_network.interface import unreachable
from rankwise_stores.tcp import wire
from rankwise_stores.tcp.guard import Keys
from rankwise_stores.tcp.zeromq import MONITOR_EVENT, PRIVATE_URL, keep_alive

#: Waiting for the socket alone is quicker than for it and its monitor; that one is looked at from then on.
_QUICK_MS = 20

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.1
#: How long one attempt may take where there is nothing else to try, and where there are more addresses.
_ATTEMPT_S, _ATTEMPT_AMONG_SEVERAL_S = 10.0, 2.0
#: A server that is just closing may break off a handshake, but not as often in a row.
_BROKEN_HANDSHAKES = 3

_REFUSED = "nobody listens there"
_UNREACHABLE = "there is no answer to the attempt to connect; is it a wrong address, or a firewall?"
_SILENT = "something listens there, but does not answer; it is no rankwise store, or one that is stuck"
#: By whether this process has a secret.
_BROKEN = {
    True: "what listens there breaks off the handshake; it has another job secret or none, or is no rankwise store",
    False: "what listens there breaks off the handshake; it has a job secret, and this process has none (set "
    "RANKWISE_SECRET_FILE), or it is no rankwise store",
}
_NO_STORE = "what listens there speaks ZeroMQ, but does not answer as a rankwise store"
_OTHER_MECHANISM = {
    True: "the store there has no job secret, but this process has one",
    False: "the store there has a job secret, but this process has none; set RANKWISE_SECRET_FILE",
}

_NEVER_MS = 1 << 30


class _Hitch(Exception):
    """An attempt to connect has failed. It may be tried again unless it is `final`, and gone on with if `open`."""

    def __init__(self, reason: str, final: bool = False, open: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.final, self.open = reason, final, open


class Connection:
    """A socket of its own, and a monitor that tells how far it has come and when it breaks.

    Attributes:
        whole: Whether the next request can follow: no message has been sent or read in part, nothing has broken.
        heard_at: When the server has last answered, whatever was asked, by the monotonic clock.

    Args:
        context: The ZeroMQ context.
        store: The name of the store, for messages.
        endpoint: Where the server is.
        keys: What this client proves itself with.
    """

    def __init__(self, context: Any, store: str, endpoint: str = PRIVATE_URL, keys: Keys | None = None) -> None:
        import zmq

        self._store = store
        self._number = 0
        self.whole = True
        self.heard_at = -math.inf
        self._state, self._stands = _UNREACHABLE, False
        self._monitor: Any = None
        self._socket = socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.sndhwm = 0  # a request is bounded, and its pieces are sent immediately
        socket.maxmsgsize = wire.MAX_FRAME_NBYTES
        # What answers after a break may be another server, so there is no second attempt: not for days. To forbid it
        # (-1), or to set `immediate`, would drop a reply that has come just before the server's end.
        socket.reconnect_ivl = _NEVER_MS
        socket.rcvtimeo = _QUICK_MS
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        try:
            if endpoint != PRIVATE_URL:
                socket.handshake_ivl = 0  # our own deadline decides
                socket.ipv6 = "[" in endpoint
                keep_alive(socket)
                if keys is not None:
                    keys.guard_client(socket)
                self._monitor = socket.get_monitor_socket()
                self._poller.register(self._monitor, zmq.POLLIN)
            socket.connect(endpoint)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the sockets back; again does nothing."""
        import zmq

        self.whole = False
        if self._socket.closed:
            return
        if self._monitor is not None:
            with contextlib.suppress(zmq.ContextTerminated):
                self._socket.disable_monitor()
        self._socket.close(0)
        if self._monitor is not None:
            self._monitor.close(0)

    def request(self, name: str, wait_s: float | None, args: Sequence[Any], deadline: Deadline) -> wire.Reply:
        """Send a request and return its reply. What is raised, even by an interrupt, may leave the connection whole.

        Raises:
            DistNetworkError: The connection broke.
            DistTimeoutError: There was no reply by the deadline.
            ProtocolError: What came is no reply.
            ValueError: The request is too large.
        """
        try:
            self._ask(name, wait_s, args)
            return self._answer(name, deadline)
        except (DistNetworkError, ProtocolError):
            self.whole = False
            raise

    def _ask(self, name: str, wait_s: float | None, args: Sequence[Any]) -> None:
        import zmq

        self._number += 1
        data = wire.encode_request(self._number, name, wait_s, args)
        if len(data) > wire.MAX_MESSAGE_NBYTES:
            raise ValueError(f"{name.rstrip('_')}: {len(data)} bytes of arguments are too much for one call")
        try:
            pieces = wire.to_pieces(data)
            self.whole = len(pieces) == 1  # which is sent or not
            for piece in pieces:
                self._socket.send(piece, zmq.NOBLOCK)
            self.whole = True
        except zmq.Again:
            raise self._gone() from None

    def _answer(self, name: str, deadline: Deadline) -> wire.Reply:
        """Return the reply to the latest request; those to earlier ones, which were given up, are passed over."""
        reply = self._next_reply(name, deadline)
        while 0 < reply.number < self._number or reply.number == wire.PROBE:
            reply = self._next_reply(name, deadline)
        if reply.status == wire.PROTOCOL_ERROR:
            raise ProtocolError(f"{self._store}: the server does not understand the request: {reply.value}")
        if reply.number != self._number or (reply.status == wire.OK and not wire.is_result(name, reply.value)):
            raise ProtocolError(f"{self._store}: what has come is no reply to {name.rstrip('_')}")
        return reply

    def _next_reply(self, name: str, deadline: Deadline) -> wire.Reply:
        import zmq

        reply = wire.decode_reply(self._receive(name, deadline))
        self.whole, self.heard_at = True, time.monotonic()
        if reply.receipt:
            with contextlib.suppress(zmq.Again):  # the server has gone, which the next request will notice
                self._socket.send(wire.to_receipt(reply), zmq.NOBLOCK)
        return reply

    def establish(self, guarded: bool, deadline: Deadline) -> bytes:
        """Wait until the connection stands, and return the identity of the server; may be called again."""
        self._shake_hands(guarded, deadline)
        try:
            if not self._number:
                self._ask(wire.hello.__name__, None, [wire.VERSION])
            _, version, identity = self._answer(wire.hello.__name__, deadline).value
        except ProtocolError as error:
            raise _Hitch(_NO_STORE, final=True) from error
        except DistNetworkError as error:
            raise _Hitch(_BROKEN[guarded]) from error
        except DistTimeoutError as error:
            raise _Hitch(_NO_STORE, open=True) from error
        if version != wire.VERSION:
            raise _Hitch(f"the store there speaks version {version!r:.40}, this process {wire.VERSION}", final=True)
        return bytes(identity)

    def _shake_hands(self, guarded: bool, deadline: Deadline) -> None:
        import zmq

        while not self._stands:
            if not self._monitor.poll(_ms(deadline)):
                heed()
                if deadline.expired():
                    raise _Hitch(self._state, open=True)
                continue
            event, value = self._next_event()
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._stands = True
            elif event == zmq.EVENT_CONNECTED:
                self._state = _SILENT
            elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                raise _Hitch(_BROKEN[guarded], final=True)
            elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                other = value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
                raise _Hitch((_OTHER_MECHANISM if other else _BROKEN)[guarded], final=other)
            elif event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_DISCONNECTED):
                raise _Hitch(_BROKEN[guarded])
            elif event in (zmq.EVENT_CLOSED, zmq.EVENT_CONNECT_RETRIED):
                raise _Hitch(_REFUSED)

    def _receive(self, name: str, deadline: Deadline) -> bytes:
        import zmq

        if 1000 * deadline.remaining() > _QUICK_MS:
            try:
                return self._read()
            except zmq.Again:
                pass
        while True:
            ready = dict(self._poller.poll(_ms(deadline)))
            if self._socket in ready:
                return self._read()
            if not ready:
                heed()
                if deadline.expired():
                    patience = in_words(deadline.timeout_s)
                    raise DistTimeoutError(f"{name.rstrip('_')} on {self._store}: no answer for {patience}")
            elif self._next_event()[0] == zmq.EVENT_DISCONNECTED:
                # The last reply may have come with the end.
                if self._socket.poll(0):
                    return self._read()
                raise self._gone()

    def _read(self) -> bytes:
        import zmq

        self.whole = False
        try:
            return wire.from_frames(self._socket.recv_multipart())
        except zmq.Again:
            self.whole = True
            raise

    def _gone(self) -> DistNetworkError:
        return DistNetworkError(f"{self._store}: the server is gone; its process has ended, or has closed the store")

    def _next_event(self) -> tuple[int, int]:
        event, value = MONITOR_EVENT.unpack(self._monitor.recv_multipart()[0])
        return event, value


class Attempt(NamedTuple):
    """A connection that does not stand yet; on a slow network that takes longer than some requests may."""

    connection: Connection
    endpoint: str
    limit: Deadline


def connect(
    context: Any,
    store: str,
    endpoints: Sequence[str],
    keys: Keys | None,
    known: bytes | None,
    deadline: Deadline,
    begun: list[Attempt],
    patient: bool = True,
) -> tuple[Connection, bytes]:
    """Connect to a server, which may still have to be started; return the connection and the server's identity.

    Args:
        context: The ZeroMQ context.
        store: The name of the store, for messages.
        endpoints: Where to look for the server, again and again.
        keys: What this client proves itself with.
        known: The identity of the server that has answered before; then no other will do, and it must answer now.
        deadline: When to give up.
        begun: Attempts to go on with; what has not come to an end by the deadline is left there.
        patient: Whether to wait where nobody listens yet.

    Raises:
        DistTimeoutError: There was no server by the deadline; the message says how far it came.
        DistNetworkError: Something else is there, or the known server is not there any more.
    """
    pause_s, broken, reason = _FIRST_PAUSE_S, 0, _UNREACHABLE
    attempt_s = _ATTEMPT_S if len(endpoints) == 1 else _ATTEMPT_AMONG_SEVERAL_S
    for turn in itertools.count(1):
        if not begun:
            endpoint = endpoints[turn % len(endpoints) - 1]
            begun.append(Attempt(Connection(context, store, endpoint, keys), endpoint, Deadline(attempt_s)))
        connection, endpoint, limit = attempt = begun.pop()
        try:
            identity = connection.establish(keys is not None, min(limit, deadline, key=Deadline.remaining))
            if known in (None, identity):
                return connection, identity
            raise _Hitch("another store has taken its place", final=True)
        except _Hitch as hitch:
            if hitch.open and not limit.expired():
                begun.append(attempt)
            else:
                connection.close()
            if hitch.reason != _UNREACHABLE or not deadline.expired():
                reason = hitch.reason  # an attempt that had hardly begun says less than the one before
            broken = broken + 1 if hitch.reason in _BROKEN.values() else 0
            if deadline.expired():
                told = _told(store, endpoint, reason)
                raise DistTimeoutError(f"{told} (for {in_words(deadline.timeout_s)})") from hitch
            gone = hitch.reason == _REFUSED and (known is not None or (not patient and turn >= len(endpoints)))
            if hitch.final or gone or broken == _BROKEN_HANDSHAKES * len(endpoints):
                raise DistNetworkError(_told(store, endpoint, reason)) from hitch
        except BaseException:
            connection.close()
            raise
        heed()
        if turn % len(endpoints) == 0:
            time.sleep(min(pause_s, deadline.remaining()))
            pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
    raise AssertionError


def _told(store: str, endpoint: str, reason: str) -> str:
    """Say where a store was looked for in vain, and why; ZeroMQ does not tell who refuses."""
    if reason == _REFUSED:
        reason = unreachable(endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")) or reason
    return f"{store} at {endpoint}: {reason}"


def _ms(deadline: Deadline) -> int:
    return math.ceil(1000 * min(deadline.remaining(), held.patience_s))
