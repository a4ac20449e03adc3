"""The engine of one group on one rank: all its connections and messages, moved forward by whoever waits.

There is one seat. A thread that waits for a request takes the seat and moves everything that can be moved until its
own request has ended; other threads wait for the seat or for their request. While requests are pending that nobody
waits for, a thread of the engine's own takes the seat whenever it is free. So a synchronous call is never handed from
one thread to another, and an asynchronous one makes progress while the caller computes.
"""

from __future__ import annotations

import contextvars
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from time import monotonic

from rankwise.arrays import Array, as_bytes
from rankwise.errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistTimeoutError,
    PeerDiedError,
    ProtocolError,
)
from rankwise_gloo_tcp import peer_memory
from rankwise_gloo_tcp.cards import Card
from rankwise_gloo_tcp.connection import Connection, Guards, Incoming
from rankwise_gloo_tcp.joining import GUEST_PATIENCE_S, MAX_GUESTS, Dial, Guest
from rankwise_gloo_tcp.matching import Arrival, Matching
from rankwise_gloo_tcp.peer import Peer
from rankwise_gloo_tcp.poller import READ, WRITE, make_poller
from rankwise_gloo_tcp.request import Request
from rankwise_gloo_tcp.wire import READABLE, WANTS_RECEIPT, Header, Kind, notice, read_notice

__all__ = ["EAGER_NBYTES", "Engine"]

#: Messages of the program up to here travel at once; longer ones when the receive is there.
EAGER_NBYTES = 32 << 10
#: From here on a message of a collective is read from the sender's memory, where that is possible.
READ_NBYTES = 64 << 10
#: From this tag on messages belong to collectives, which wait for each of them.
_COLLECTIVE_TAGS = 1 << 30

_TICK_S = 0.25
_RETRY_S = 0.005
_REACH_AFTER_S = 0.05
_LINGER_S = 5.0
#: A receive from anyone connects to everyone, so that a death is noticed; not in a larger group.
_MANY = 64
_THREAD_TICK_S = 0.001
_THREAD_TICKS = 20

#: One text, however it is noticed, so that all ranks raise the same error.
_GONE = "its connections have ended"

Handler = Callable[[int], None]


class Engine:
    """All messages of one rank of one group.

    Args:
        rank: This rank.
        cards: Where each rank listens.
        key: The key of the handshake.
        guarded: Whether the headers of TCP connections are guarded.
        names: The global rank of each rank.
        timeout_s: How long a wait without a time-out of its own may take.
        on_failure: Called once, without the lock, when the group has failed.
        allow_near: Whether Unix sockets may be used.
    """

    def __init__(
        self,
        rank: int,
        cards: list[Card],
        key: bytes,
        guarded: bool,
        names: tuple[int, ...],
        timeout_s: float,
        on_failure: Callable[[DistError], object],
        allow_near: bool,
    ) -> None:
        self.rank, self.size, self.key, self.guarded = rank, len(names), key, guarded
        self.names, self.timeout_s = names, timeout_s
        self.lock = threading.Lock()
        self.settled: deque[Request] = deque()
        self.failure: DistError | None = None
        #: For how long a wait looks at its connection before it sleeps.
        self.spin_s = 0.0
        self._on_failure = on_failure
        #: Called with the first failure, with the lock held, to tell those whom no connection reaches.
        self.on_abort: Callable[[DistError], object] | None = None
        self._unreported: DistError | None = None
        self._changed = threading.Condition(self.lock)
        self._seated = self._thread_seated = False
        self._callers = self._followers = self._pending = 0
        self._last_drive = 0.0
        self._thread: threading.Thread | None = None
        self._ticking = self._closed = False
        self._linger_until = 0.0
        #: Whether a Unix socket's queue was full and is to be tried again.
        self._retrying = False
        self._poller = make_poller()
        self._handlers: dict[int, Handler] = {}
        self._masks: dict[int, int] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poller.register(self._wake_read, READ)
        self._handlers[self._wake_read] = self._woken
        self._listeners: list[socket.socket] = []
        self._processes: dict[int, int] = {}
        self._guests: dict[Guest, None] = {}
        self._jobs: deque[tuple[Arrival, Request]] = deque()
        self._idents = count(1)
        self.matching = Matching()
        #: The sends whose end the peer has to tell, and the receives whose payload was asked for.
        self._outgoing: dict[tuple[int, int], Request] = {}
        self._awaited: dict[tuple[int, int], Request] = {}
        #: The receives that have met a message of which bytes are still to come.
        self._claims: dict[int, Request] = {}
        me = cards[rank] if cards else None
        self.peers = [
            Peer(index, card, allow_near and me is not None and me.is_near(card)) for index, card in enumerate(cards)
        ]

    # ------------------------------------------------------------------ what the communicator calls

    def listen(self, sock: socket.socket, near: bool) -> None:
        """Take in guests from a listening socket, which the engine closes in the end."""
        sock.setblocking(False)
        self._listeners.append(sock)
        self.watch_fd(sock, READ, partial(self._accept, sock, near))

    def send(self, array: Array, to: int, tag: int, waited: bool = False) -> Request:
        """Begin to send; `waited` says that the caller waits for the end at once."""
        request = Request(self, as_bytes(array), to, tag)
        quiet = tag >= _COLLECTIVE_TAGS
        with self.lock:
            if self._refused(request, to):
                pass
            elif to == self.rank:
                self._send_to_self(request)
            else:
                peer = self.peers[to]
                nbytes = len(request.buffer)
                readable = peer.readable and nbytes >= READ_NBYTES
                if quiet and not readable:
                    self._dispatch(peer, Header(Kind.MESSAGE, 0, tag, nbytes, 0, 0), request.buffer, request)
                elif quiet:
                    self._announce(peer, request)
                elif peer.backlog or peer.is_full(nbytes):
                    peer.backlog.append(request)
                else:
                    self._announce(peer, request)
            if not quiet and not waited:
                self._issued(request)
        self.settle()
        return request

    def receive(self, array: Array, source: int | None, tag: int, waited: bool = False) -> Request:
        """Begin to receive; `waited` says that the caller waits for the end at once."""
        request = Request(self, as_bytes(array), source, tag)
        with self.lock:
            if not self._refused(request, source, posting=True):
                arrival = self.matching.post(request)
                if arrival is not None:
                    self._meet(arrival, request)
            if tag < _COLLECTIVE_TAGS and not waited:
                self._issued(request)
        self.settle()
        return request

    def withdraw(self, request: Request) -> bool:
        """Take back a receive that no message has met."""
        with self.lock:
            done = not request.done and self.matching.withdraw(request)
            if done:
                request.end(DistBackendError("the receive was withdrawn"))
        self.settle()
        return done

    def drive(self, request: Request, timeout_s: float) -> None:
        """Move messages until `request` has ended.

        Raises:
            DistTimeoutError: The time-out has passed.
        """
        at = monotonic() + timeout_s
        reach_at = monotonic() + _REACH_AFTER_S
        while self._take_seat(request, at):
            try:
                if self.spin_s:
                    self._spin(request)
                while not request.done and not self._has_news():
                    now = monotonic()
                    if now >= at:
                        raise self._late(request, timeout_s)
                    if now >= reach_at:
                        self._reach(request.peer)
                        reach_at = now + _TICK_S
                    self._progress(min(at, reach_at) - now)
            finally:
                self._leave_seat()
            # Whoever hears of it may want to wait for something else, and needs the seat for that.
            self.settle()
        self.settle()

    def look(self) -> None:
        """Take in what has come, without waiting, if nobody else does."""
        with self.lock:
            if self._seated or self._closed:
                return
            self._seated = True
            self._callers += 1
        try:
            self._progress(0.0)
        finally:
            self._leave_seat()
            self.settle()

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

    def watch_processes(self, descriptors: dict[int, int], has_left: Callable[[int], bool]) -> None:
        """Notice the end of peers' processes.

        Args:
            descriptors: A descriptor of the process of each peer, which the engine closes.
            has_left: Tells whether a peer has gone in good order.
        """
        with self.lock:
            for rank, fd in descriptors.items():
                self._processes[rank] = fd
                self._poller.register(fd, READ)
                self._handlers[fd] = partial(self._process_ended, rank, has_left)

    # ------------------------------------------------------------------ what requests call

    def ended(self, request: Request) -> None:
        """Note that a request has ended; the lock is held."""
        if request.watched:
            self._pending -= 1
        if request.has_promise():
            self.settled.append(request)
        if self._followers:
            self._changed.notify_all()

    def _has_news(self) -> bool:
        return bool(self.settled) or self._unreported is not None

    def settle(self) -> None:
        """Do what must be done without the lock: tell futures, and the communicator of a failure."""
        while self.settled:
            try:
                request = self.settled.popleft()
            except IndexError:
                break
            request.settle()
        if self._unreported is not None:
            error, self._unreported = self._unreported, None
            self._on_failure(error)

    # ------------------------------------------------------------------ the seat

    def _take_seat(self, request: Request, at: float) -> bool:
        """Return true with the seat taken, false once the request has ended.

        Raises:
            DistTimeoutError: Neither has happened in time.
        """
        began = monotonic()
        with self.lock:
            self._callers += 1
            self._followers += 1
            try:
                while not request.done:
                    if not self._seated:
                        self._seated = True
                        return True
                    if self._thread_seated:
                        self._wake()
                    if not self._changed.wait(at - monotonic()) and monotonic() >= at:
                        self._callers -= 1
                        raise self._late(request, at - began)
                self._callers -= 1
                return False
            finally:
                self._followers -= 1

    def _spin(self, request: Request) -> None:
        """Look at the one connection that matters, for as long as it takes to fall asleep and be woken."""
        peer = None if request.peer is None or not self.peers else self.peers[request.peer]
        until = monotonic() + self.spin_s
        while not request.done and peer is not None and peer.connection is not None and monotonic() < until:
            with self.lock:
                if peer.connection is not None:
                    peer.connection.receive()
            if self._jobs:
                self._read_memory()

    def _leave_seat(self) -> None:
        with self.lock:
            self._seated = False
            self._callers -= 1
            if self._followers:
                self._changed.notify_all()
        self._last_drive = monotonic()

    def _progress(self, timeout_s: float) -> None:
        """Wait until something can be done, and do it. Only whoever has the seat calls."""
        if self._jobs:
            self._read_memory()
            timeout_s = 0.0
        if self._guests:
            timeout_s = min(timeout_s, _TICK_S)
        if self._retrying:
            timeout_s = min(timeout_s, _RETRY_S)
        events = self._poller.poll(timeout_s if timeout_s > 0 else 0)
        with self.lock:
            for fd, event in events:
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(event)
            if self._retrying or self._guests:
                self._housekeeping()
        if self._jobs:
            self._read_memory()

    def _housekeeping(self) -> None:
        now = monotonic()
        for guest in [guest for guest in self._guests if now - guest.since > GUEST_PATIENCE_S]:
            self.guest_left(guest)
        if self._retrying:
            self._retrying = False
            for peer in self.peers:
                if peer.dial is not None and peer.dial.again:
                    self._try(peer, peer.dial.begin)

    def _late(self, request: Request, timeout_s: float) -> DistTimeoutError:
        who = "any rank" if request.peer is None else f"rank {self.names[request.peer]}"
        return DistTimeoutError(f"not done within {timeout_s:g} s, waiting for {who}")

    def _wake(self) -> None:
        with suppress(OSError):  # full: it is being woken already
            os.write(self._wake_write, b"w")

    def _woken(self, event: int) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 512)

    # ------------------------------------------------------------------ the thread

    def _issued(self, request: Request) -> None:
        """Count a request that its caller may leave alone."""
        if request.done:
            return
        request.watched = True
        self._pending += 1
        self._need_thread()

    def _need_thread(self) -> None:
        if self._thread is None:
            # In a copy of the caller's context, so that callbacks find the caller's world.
            serve = contextvars.copy_context().run
            self._thread = threading.Thread(target=serve, args=(self._serve,), name="rankwise gloo", daemon=True)
            self._ticking = True
            self._thread.start()
        elif not self._ticking:
            self._ticking = True
            self._changed.notify_all()

    def _serve(self) -> None:
        idle = 0
        while True:
            with self.lock:
                if self._closed:
                    return
                work = self._has_work()
                busy = self._callers > 0 or self._seated or monotonic() - self._last_drive < _THREAD_TICK_S
                if not work or busy:
                    idle = 0 if work else idle + 1
                    if idle > _THREAD_TICKS:
                        self._ticking, idle = False, 0
                        self._changed.wait()
                    else:
                        self._changed.wait(_THREAD_TICK_S)
                    continue
                self._seated = self._thread_seated = True
            idle = 0
            try:
                while self._on_duty():
                    self._progress(_TICK_S)
            finally:
                with self.lock:
                    self._seated = self._thread_seated = False
                    self._changed.notify_all()
                self.settle()

    def _on_duty(self) -> bool:
        return self._callers == 0 and not self._closed and self._has_work() and not self._has_news()

    def _has_work(self) -> bool:
        if self._pending > 0:
            return True
        return self._linger_until > monotonic() and not self._all_sent()

    def _all_sent(self) -> bool:
        return all(peer.connection is None or peer.connection.idle for peer in self.peers)

    # ------------------------------------------------------------------ sending

    def _refused(self, request: Request, rank: int | None, posting: bool = False) -> bool:
        """End a request that cannot succeed any more."""
        if self.failure is not None:
            request.end(self.failure)
        elif self._closed:
            request.end(DistBackendError("the group has been destroyed"))
        elif rank is not None and self.peers and not posting and self.peers[rank].gone is not None:
            request.end(self.peers[rank].gone)
        else:
            return False
        return True

    def _send_to_self(self, request: Request) -> None:
        header = Header(Kind.MESSAGE, 0, request.tag, len(request.buffer))
        arrival = Arrival(self.rank, header, request.buffer, complete=True, local=request)
        receive = self.matching.arrive(self.rank, request.tag)
        if receive is None:
            self.matching.keep(arrival)
        else:
            self._meet(arrival, receive)

    def _announce(self, peer: Peer, request: Request) -> None:
        """Send a message whose end the peer has to tell."""
        nbytes, ident = len(request.buffer), next(self._idents)
        self._outgoing[peer.rank, ident] = request
        peer.begin(nbytes)
        if nbytes <= EAGER_NBYTES:
            header = Header(Kind.MESSAGE, WANTS_RECEIPT, request.tag, nbytes, ident)
            self._dispatch(peer, header, request.buffer)
        elif peer.readable:
            address = peer_memory.address(request.buffer)
            self._dispatch(peer, Header(Kind.OFFER, READABLE, request.tag, nbytes, ident, address))
        else:
            self._dispatch(peer, Header(Kind.OFFER, 0, request.tag, nbytes, ident))

    def _dispatch(
        self, peer: Peer, header: Header, payload: memoryview | None = None, request: Request | None = None
    ) -> None:
        """Send a frame, over a connection that is made if there is none."""
        if peer.connection is not None:
            peer.connection.send(header, payload, request)
        else:
            peer.frames.append((header, payload, request))
            self._connect(peer)

    def _receipt(self, source: int, ident: int) -> None:
        self._dispatch(self.peers[source], Header(Kind.RECEIPT, ident=ident))

    def _finish_outgoing(self, source: int, ident: int, error: DistError | None) -> None:
        request = self._outgoing.pop((source, ident), None)
        if request is None:
            return  # given up meanwhile
        peer = self.peers[source]
        peer.finish(len(request.buffer))
        request.end(error)
        while peer.backlog and not peer.is_full(len(peer.backlog[0].buffer)):
            self._announce(peer, peer.backlog.popleft())

    # ------------------------------------------------------------------ what connections tell

    def frame(self, connection: Connection, header: Header) -> Incoming | None:
        """Take a frame."""
        source = connection.peer
        kind = header.kind
        if kind == Kind.MESSAGE:
            return self._message(connection, header)
        if kind == Kind.OFFER:
            self._offer(source, header)
        elif kind == Kind.RECEIPT:
            self._finish_outgoing(source, header.ident, None)
        elif kind == Kind.REQUEST:
            self._requested(source, header)
        elif kind == Kind.PAYLOAD:
            return self._payload(source, header)
        elif kind == Kind.REFUSAL:
            self._refusal(source, header)
        elif kind == Kind.GOODBYE:
            connection.left = True
            self._has_left(source)
        else:
            text = bytearray(header.length)
            return Incoming(memoryview(text), lambda: self._given_up(source, bytes(text)))
        return Incoming(None, _nothing)

    def lost(self, connection: Connection, error: ProtocolError | None = None) -> None:
        """Hear that a connection has ended, or that what it brings makes no sense."""
        connection.close()
        peer = self.peers[connection.peer]
        if peer.connection is connection:
            peer.connection = None
        if self.failure is None and not connection.left:
            self._fail(error or self._death(peer, _GONE))
        for request in connection.drop():
            request.end(self.failure or peer.gone)

    def watch(self, connection: Connection, reading: bool, writing: bool) -> None:
        """Call the connection when its socket is ready."""
        mask = READ * reading | WRITE * writing
        fd = connection.sock.fileno()
        if fd < 0 or self._masks.get(fd, 0) == mask:
            return
        if not mask:
            self.unwatch(connection.sock)
            return

        def ready(event: int) -> None:
            if event & WRITE and not connection.closed:
                connection.flush()
            if event & ~WRITE and not connection.closed:
                connection.receive()

        self.watch_fd(connection.sock, mask, ready)

    def watch_fd(self, sock: socket.socket, mask: int, handler: Handler) -> None:
        """Call `handler` when a socket is ready."""
        fd = sock.fileno()
        if fd in self._masks:
            self._poller.modify(fd, mask)
        else:
            self._poller.register(fd, mask)
        self._masks[fd], self._handlers[fd] = mask, handler

    def unwatch(self, sock: socket.socket) -> None:
        """Stop calling."""
        fd = sock.fileno()
        if self._masks.pop(fd, None) is not None:
            self._handlers.pop(fd, None)
            self._poller.unregister(fd)

    def _message(self, connection: Connection, header: Header) -> Incoming | None:
        source = connection.peer
        if header.flags & WANTS_RECEIPT and header.length > EAGER_NBYTES:
            raise ProtocolError(f"a message of {header.length} bytes was not announced")
        receive = self.matching.arrive(source, header.tag)
        if receive is not None:
            return self._take_in(source, header, receive)
        if header.length > EAGER_NBYTES:
            arrival = Arrival(source, header)
            self.matching.keep(arrival)
            return None  # the connection stands still until the collective gets there
        data = bytearray(header.length)
        arrival = Arrival(source, header, data)
        self.matching.keep(arrival)
        return Incoming(memoryview(data), lambda: self._whole(arrival))

    def _take_in(self, source: int, header: Header, receive: Request) -> Incoming:
        """Let a message go straight into the receive's memory."""
        if header.length > len(receive.buffer):
            self._too_long(source, header, receive)
            return Incoming(None, _nothing)

        def whole() -> None:
            receive.end(None, source)
            if header.flags & WANTS_RECEIPT:
                self._receipt(source, header.ident)

        return Incoming(receive.buffer[: header.length], whole, receive)

    def _whole(self, arrival: Arrival) -> None:
        arrival.complete = True
        if arrival.claimed is not None:
            self._claims.pop(id(arrival), None)
            self._hand_over(arrival, arrival.claimed)

    def _offer(self, source: int, header: Header) -> None:
        arrival = Arrival(source, header)
        receive = self.matching.arrive(source, header.tag)
        if receive is None:
            self.matching.keep(arrival)
        else:
            self._accept_offer(arrival, receive)

    def _accept_offer(self, arrival: Arrival, receive: Request) -> None:
        header, source = arrival.header, arrival.source
        if header.length > len(receive.buffer):
            self._too_long(source, header, receive)
        elif header.flags & READABLE and self.peers[source].readable:
            self._jobs.append((arrival, receive))
        else:
            self._ask_for(arrival, receive)

    def _ask_for(self, arrival: Arrival, receive: Request) -> None:
        source, ident = arrival.source, arrival.header.ident
        self._awaited[source, ident] = receive
        self._dispatch(self.peers[source], Header(Kind.REQUEST, length=arrival.header.length, ident=ident))

    def _requested(self, source: int, header: Header) -> None:
        request = self._outgoing.get((source, header.ident))
        if request is None or len(request.buffer) != header.length:
            raise ProtocolError("a message was asked for that was not offered")
        self._outgoing.pop((source, header.ident))
        peer = self.peers[source]
        peer.finish(len(request.buffer))
        self._dispatch(peer, Header(Kind.PAYLOAD, 0, 0, header.length, header.ident), request.buffer, request)
        while peer.backlog and not peer.is_full(len(peer.backlog[0].buffer)):
            self._announce(peer, peer.backlog.popleft())

    def _payload(self, source: int, header: Header) -> Incoming:
        receive = self._awaited.pop((source, header.ident), None)
        if receive is None or header.length > len(receive.buffer):
            raise ProtocolError("a payload came that was not asked for")
        return Incoming(receive.buffer[: header.length], lambda: receive.end(None, source), receive)

    def _refusal(self, source: int, header: Header) -> None:
        request = self._outgoing.get((source, header.ident))
        if request is not None:
            error = _truncation(len(request.buffer), self.names[self.rank], request.tag, header.length)
            self._finish_outgoing(source, header.ident, error)

    def _too_long(self, source: int, header: Header, receive: Request) -> None:
        room = len(receive.buffer)
        receive.end(_truncation(header.length, self.names[source], header.tag, room), source)
        if header.ident:
            self._dispatch(self.peers[source], Header(Kind.REFUSAL, length=room, ident=header.ident))

    def _meet(self, arrival: Arrival, receive: Request) -> None:
        """Give a message that was kept to a receive."""
        header = arrival.header
        if arrival.local is not None:
            if header.length > len(receive.buffer):
                error = _truncation(header.length, self.names[self.rank], header.tag, len(receive.buffer))
                receive.end(error)
                arrival.local.end(error)
            else:
                receive.buffer[: header.length] = arrival.local.buffer
                receive.end(None, self.rank)
                arrival.local.end()
        elif header.kind == Kind.OFFER:
            self._accept_offer(arrival, receive)
            if self._jobs and self._thread_seated:
                self._wake()
        elif arrival.data is None:
            connection = self.peers[arrival.source].connection
            if connection is None:
                receive.end(self.failure or self.peers[arrival.source].gone)
            else:
                connection.resume(self._take_in(arrival.source, header, receive))
        elif arrival.complete:
            self._hand_over(arrival, receive)
        else:
            arrival.claimed = self._claims[id(arrival)] = receive

    def _hand_over(self, arrival: Arrival, receive: Request) -> None:
        header, source, data = arrival.header, arrival.source, arrival.data
        if header.length > len(receive.buffer) or data is None:
            self._too_long(source, header, receive)
            return
        receive.buffer[: header.length] = data
        receive.end(None, source)
        if header.flags & WANTS_RECEIPT:
            self._receipt(source, header.ident)

    def _read_memory(self) -> None:
        """Copy offered messages from their senders' memory. Only whoever has the seat calls, without the lock."""
        while self._jobs:
            arrival, receive = self._jobs.popleft()
            header, source = arrival.header, arrival.source
            peer = self.peers[source]
            target = receive.buffer[: header.length]
            copied = peer_memory.read(peer.card.pid, header.address, target, lambda r=receive: r.done)  # type: ignore[misc]
            with self.lock:
                if receive.done:
                    continue
                if copied:
                    receive.end(None, source)
                    self._receipt(source, header.ident)
                else:
                    peer.readable = False
                    self._ask_for(arrival, receive)

    # ------------------------------------------------------------------ connections that are being made

    def _connect(self, peer: Peer) -> None:
        if peer.dial is None and peer.connection is None and self.failure is None:
            self._try(peer, lambda: self._dial(peer))
            if self._thread_seated:
                self._wake()

    def _dial(self, peer: Peer) -> None:
        if not peer.near and not peer.card.address:
            raise DistNetworkError(
                f"rank {self.names[peer.rank]} on {peer.card.host} serves no network, as there is no job secret"
            )
        peer.dial = Dial(self, peer.rank, peer.card, peer.near)
        self._retrying = self._retrying or peer.dial.again

    def _try(self, peer: Peer, step: Callable[[], object]) -> None:
        try:
            step()
        except OSError:
            self._drop_dial(peer)
            self._fail(self._death(peer, _GONE))
        except DistError as error:
            self._fail(error)
        if peer.dial is not None and peer.dial.again:
            self._retrying = True

    def _drop_dial(self, peer: Peer) -> None:
        dial, peer.dial = peer.dial, None
        if dial is not None:
            dial.close()

    def dial_failed(self, dial: Dial, why: str) -> None:
        """Try again where that may help: the other may have had no time for the handshake."""
        peer = self.peers[dial.peer]
        self._drop_dial(peer)
        peer.failures += 1
        if "handshake" in why and peer.failures < 4:
            self._connect(peer)
        elif "prove" in why or "handshake" in why:
            where = f"rank {self.names[peer.rank]} on {peer.card.host}"
            self._fail(DistNetworkError(f"cannot connect to {where}: {why}"))
        else:
            self._fail(self._death(peer, _GONE))

    def dial_crossed(self, dial: Dial) -> None:
        """The other has dialled too, and its connection will come."""
        self._drop_dial(self.peers[dial.peer])

    def _reach(self, rank: int | None) -> None:
        """Connect to whom a receive is waiting for, so that its death is noticed."""
        with self.lock:
            if self.failure is not None or (rank is None and self.size > _MANY):
                return
            for peer in self.peers if rank is None else self.peers[rank : rank + 1]:
                if peer.rank != self.rank and peer.gone is None:
                    self._connect(peer)

    def _accept(self, listener: socket.socket, near: bool, event: int) -> None:
        for _ in range(16):
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return  # it went away before it was taken in, or there are no descriptors left
            while len(self._guests) >= MAX_GUESTS:
                self.guest_left(next(iter(self._guests)))  # who has been at it for longest
            guest = Guest(self, sock, near)
            self._guests[guest] = None
            if not guest.welcome_user():
                self.guest_left(guest)

    def guest_left(self, guest: Guest, keep: bool = False) -> None:
        """Forget a guest; with `keep` its socket has become a connection."""
        self._guests.pop(guest, None)
        if keep:
            self.unwatch(guest.sock)
        else:
            guest.close()

    def admit(self, source: int) -> bool:
        """Tell whether a peer that has proved itself may connect: not if this rank's own attempt takes precedence."""
        peer = self.peers[source]
        if peer.connection is not None:
            return False
        return peer.dial is None or self.rank > source

    def join(self, source: int, sock: socket.socket, guards: Guards | None) -> None:
        """Begin to use a connection whose other end has proved itself."""
        peer = self.peers[source]
        if peer.dial is not None and peer.dial.sock is not sock:
            self._drop_dial(peer)
        peer.dial = None
        peer.failures = 0
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                sock.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
        peer.connection = Connection(self, source, sock, guards)
        frames, peer.frames = peer.frames, []
        for header, payload, request in frames:
            peer.connection.send(header, payload, request)

    # ------------------------------------------------------------------ the end

    def _death(self, peer: Peer, why: str) -> PeerDiedError:
        return PeerDiedError(self.names[peer.rank], peer.card.host, why)

    def _process_ended(self, rank: int, has_left: Callable[[int], bool], event: int) -> None:
        peer = self.peers[rank]
        self._forget_process(rank)
        if peer.connection is not None:
            peer.connection.receive()  # its last word may be a good-bye
        if peer.gone is None and has_left(rank):
            self._has_left(rank)
        if peer.gone is None:
            self._fail(self._death(peer, _GONE))

    def _forget_process(self, rank: int) -> None:
        fd = self._processes.pop(rank, None)
        if fd is not None:
            self._handlers.pop(fd, None)
            self._poller.unregister(fd)
            os.close(fd)

    def _has_left(self, source: int) -> None:
        peer = self.peers[source]
        peer.gone = self._death(peer, "it has destroyed the group")
        receives, arrivals = self.matching.clear()
        for arrival in arrivals:
            self.matching.keep(arrival)
        for receive in receives:
            if receive.peer == source:
                receive.end(peer.gone)
            else:
                self.matching.post(receive)
        for key in [key for key in self._outgoing if key[0] == source]:
            self._outgoing.pop(key).end(peer.gone)
        while peer.backlog:
            peer.backlog.popleft().end(peer.gone)

    def _given_up(self, source: int, text: bytes) -> None:
        self._fail(read_notice(text, self.names[source]))

    def _fail(self, error: DistError) -> None:
        """Fail the whole group; the lock is held."""
        if self.failure is None:
            self._unreported = error
            self._abort(error)

    def _abort(self, error: DistError) -> None:
        if self.failure is not None or self._closed:
            return
        self.failure = error
        receives, arrivals = self.matching.clear()
        requests = [*receives, *self._outgoing.values(), *self._awaited.values()]
        requests += [arrival.local for arrival in arrivals if arrival.local is not None]
        requests += self._claims.values()
        self._claims.clear()
        requests += [receive for _, receive in self._jobs]
        self._outgoing.clear()
        self._awaited.clear()
        text = notice(error)
        if self.on_abort is not None:
            self.on_abort(error)
        for peer in self.peers:
            requests += [*peer.backlog, *(request for _, _, request in peer.frames if request is not None)]
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
            while self._seated:
                self._wake()
                self._changed.wait(0.1)
            self._followers -= 1
            self._seated = True
        try:
            while not self._all_sent() or any(peer.frames for peer in self.peers):
                left = deadline - monotonic()
                if left <= 0:
                    if self.failure is None:
                        raise DistTimeoutError("the group was closed before all that was sent had left")
                    return
                self._progress(min(left, _TICK_S))
        finally:
            self._leave_seat()

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


def _truncation(have: int, sender: int, tag: int, room: int) -> DistBackendError:
    return DistBackendError(f"a message of {have} bytes from rank {sender} (tag {tag}) met a receive of {room} bytes")


def _nothing() -> None:
    """Do nothing."""
