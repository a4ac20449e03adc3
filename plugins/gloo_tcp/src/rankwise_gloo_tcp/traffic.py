"""The messages of an engine: what is sent and received, and what the frames that come mean for it."""

from __future__ import annotations

from collections import deque
from itertools import count
from time import monotonic

from rankwise.arrays import Array, as_bytes
from rankwise.errors import DistBackendError, DistError, ProtocolError
from rankwise_gloo_tcp import peer_memory
from rankwise_gloo_tcp.connection import Connection, Incoming
from rankwise_gloo_tcp.links import GONE, Links, Setting
from rankwise_gloo_tcp.matching import Arrival, Matching
from rankwise_gloo_tcp.peer import EAGER_NBYTES, Peer
from rankwise_gloo_tcp.pipe import Pipe
from rankwise_gloo_tcp.request import Request
from rankwise_gloo_tcp.wire import COUNTED, READABLE, Header, Kind, read_notice

__all__ = ["Traffic"]

#: From here on a message of a collective is read from the sender's memory, where that is possible.
READ_NBYTES = 64 << 10
#: From this tag on messages belong to collectives, which wait for each of them.
_COLLECTIVE_TAGS = 1 << 30
#: A message that takes longer over a socket is slept for.
_BRIEF_NBYTES = 64 << 10


class Traffic(Links):
    """All messages of one rank of one group."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._jobs: deque[tuple[Arrival, Request]] = deque()
        self._idents = count(1)
        self.matching = Matching()
        #: The sends whose end the peer has to tell, and the receives whose payload was asked for.
        self._outgoing: dict[tuple[int, int], Request] = {}
        self._awaited: dict[tuple[int, int], Request] = {}
        #: The receives that have met a message of which bytes are still to come.
        self._claims: dict[int, Request] = {}

    def send(self, array: Array, to: int, tag: int, waited: bool = False) -> Request:
        """Begin to send; `waited` says that the caller waits for the end at once."""
        return self.send_bytes(as_bytes(array), to, tag, waited)

    def send_bytes(self, data: memoryview, to: int, tag: int, waited: bool = False, prefix: bytes = b"") -> Request:
        """Begin to send memory; for collectives also with something in front of it."""
        request = Request(self, data, to, tag)
        # Who waits can as well write while the other reads; who does not had better leave it to the other.
        request.streamed = waited and self.spin_s > 0
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
                if (
                    quiet
                    and not readable
                    and not (type(peer.connection) is Pipe and nbytes > peer.connection.eager_nbytes)
                ):
                    header = Header(Kind.MESSAGE, 0, tag, nbytes + len(prefix), 0, 0)
                    self._dispatch(peer, header, request.buffer, request, prefix)
                elif quiet:
                    self._announce(peer, request)
                elif peer.backlog or self._is_full(peer, nbytes):
                    peer.backlog.append(request)
                else:
                    self._announce(peer, request)
            if not quiet and not waited:
                self._issued(request)
        self.settle()
        return request

    def receive(self, array: Array, source: int | None, tag: int, waited: bool = False) -> Request:
        """Begin to receive; `waited` says that the caller waits for the end at once."""
        return self.receive_bytes(as_bytes(array), source, tag, waited)

    def receive_bytes(self, room: memoryview, source: int | None, tag: int, waited: bool = False) -> Request:
        """Begin to receive into memory."""
        request = Request(self, room, source, tag)
        with self.lock:
            if not self._refused(request, source, posting=True):
                arrival = self.matching.post(request)
                if arrival is not None:
                    self._meet(arrival, request)
                elif source is not None and self.peers and self.peers[source].gone is not None:
                    # Its good-bye came after all that it has sent.
                    self.matching.withdraw(request)
                    request.end(self.peers[source].gone)
            if tag < _COLLECTIVE_TAGS and not waited:
                self._issued(request)
        self.settle()
        return request

    def send_at_once(self, array: Array, to: int, tag: int) -> bool:
        """Send a small message to a rank of this machine; false if it must take the long way."""
        if not self.pipes or to == self.rank or array.nbytes > self.pipes[0].eager_nbytes:
            return False
        data = as_bytes(array)
        with self.lock:
            peer = self.peers[to]
            pipe = peer.connection
            if type(pipe) is not Pipe or self.failure is not None or self._failing or self._closed:
                return False
            return peer.gone is None and not peer.backlog and pipe.post(tag, data)

    def receive_at_once(self, array: Array, source: int, tag: int) -> bool:
        """Receive a small message that is there, or comes while this looks for it; else the long way must be taken."""
        if not self.pipes or source == self.rank or not self.spin_s:
            return False
        pipe = self.peers[source].connection
        with self.lock:
            if type(pipe) is not Pipe or self._seated or self.failure is not None or self._failing or self._closed:
                return False
            if self.matching.knows(tag):
                return False
            self._seated = True
            self._callers += 1
        try:
            room = as_bytes(array)
            until = monotonic() + self.spin_s
            while True:
                for _ in range(20):
                    if pipe.has_news():
                        with self.lock:
                            return pipe.take(tag, room) >= 0
                if monotonic() > until:
                    return False
        finally:
            self._leave_seat()

    def is_brief(self, nbytes: int) -> bool:
        """Tell whether it is worth to look for a message of so many bytes for a moment before sleeping."""
        return nbytes <= _BRIEF_NBYTES or bool(self.pipes)

    def withdraw(self, request: Request) -> bool:
        """Take back a receive that no message has met."""
        with self.lock:
            done = not request.done and self.matching.withdraw(request)
            if done:
                request.end(DistBackendError("the receive was withdrawn"))
        self.settle()
        return done

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
        pipe = peer.connection
        if type(pipe) is Pipe and nbytes <= pipe.eager_nbytes and request.tag < _COLLECTIVE_TAGS:
            pipe.begin(nbytes)  # shared memory tells what the peer has taken
            pipe.send(Header(Kind.MESSAGE, COUNTED, request.tag, nbytes), request.buffer, request)
            return
        peer.begin(nbytes)
        if nbytes <= EAGER_NBYTES and type(pipe) is not Pipe:
            self._dispatch(peer, Header(Kind.MESSAGE, COUNTED, request.tag, nbytes), request.buffer, request)
            return
        self._outgoing[peer.rank, ident] = request
        if peer.readable and not request.streamed:
            address = peer_memory.address(request.buffer)
            self._dispatch(peer, Header(Kind.OFFER, READABLE, request.tag, nbytes, ident, address))
        else:
            self._dispatch(peer, Header(Kind.OFFER, 0, request.tag, nbytes, ident))

    def _confirm(self, source: int, header: Header) -> None:
        """Tell the sender that a receive has taken a message."""
        if not header.flags & COUNTED:
            return
        peer = self.peers[source]
        if type(peer.connection) is Pipe:
            peer.connection.taken(header.length)
            return
        taken = peer.take(header.length)
        if taken is not None and peer.gone is None and peer.connection is not None:
            self._dispatch(peer, Header(Kind.RECEIPT, COUNTED, *taken))

    def _receipt(self, source: int, ident: int) -> None:
        self._dispatch(self.peers[source], Header(Kind.RECEIPT, ident=ident))

    def _finish_outgoing(self, source: int, ident: int, error: DistError | None) -> None:
        request = self._outgoing.pop((source, ident), None)
        if request is None:
            return  # given up meanwhile
        peer = self.peers[source]
        peer.finish(len(request.buffer))
        request.end(error)
        self._empty_backlog(peer)

    def _is_full(self, peer: Peer, nbytes: int) -> bool:
        """Tell whether a message of so many bytes must wait until the peer has received others."""
        pipe = peer.connection
        return peer.is_full(nbytes) or (type(pipe) is Pipe and nbytes <= pipe.eager_nbytes and pipe.is_full(nbytes))

    def _empty_backlog(self, peer: Peer) -> None:
        while peer.backlog and not self._is_full(peer, len(peer.backlog[0].buffer)):
            self._announce(peer, peer.backlog.popleft())

    def _write_pipes(self) -> None:
        for pipe in self.pipes:
            pipe.wants_room = False  # whoever still does says so again
            if not pipe.closed and not pipe.idle:
                pipe.flush()
            if self.peers[pipe.peer].backlog:
                self._empty_backlog(self.peers[pipe.peer])

    # ------------------------------------------------------------------ what connections tell

    def frame(self, connection: Connection | Pipe, header: Header) -> Incoming | None:
        """Take a frame."""
        source = connection.peer
        kind = header.kind
        if kind == Kind.MESSAGE:
            return self._message(connection, header)
        if kind == Kind.OFFER:
            self._offer(source, header)
        elif kind == Kind.RECEIPT and header.flags & COUNTED:
            self.peers[source].finish_counted(header.tag, header.length)
            self._empty_backlog(self.peers[source])
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
            self._peer_left(source)
        else:
            text = bytearray(header.length)
            return Incoming(memoryview(text), lambda: self._told_to_give_up(source, bytes(text)))
        return Incoming(None, _nothing)

    def lost(self, connection: Connection | Pipe, error: ProtocolError | None = None) -> None:
        """Hear that a connection has ended, or that what it brings makes no sense."""
        connection.close()
        peer = self.peers[connection.peer]
        if peer.connection is connection:
            peer.connection = None
        if self.failure is None and not connection.left:
            self._fail(error or self._death(peer, GONE))
        for request in connection.drop():
            self._bereave(request, peer)

    def _bereave(self, request: Request, peer: Peer) -> None:
        """End a request whose connection has gone, now or with the group."""
        error = self.failure or peer.gone
        if error is None:
            self._orphans.append(request)
        else:
            request.end(error)

    def _message(self, connection: Connection | Pipe, header: Header) -> Incoming | None:
        source = connection.peer
        if header.flags & COUNTED and header.length > EAGER_NBYTES:
            raise ProtocolError(f"a message of {header.length} bytes was not announced")
        receive = self.matching.arrive(source, header.tag)
        if receive is not None:
            return self._take_in(source, header, receive)
        if header.length > EAGER_NBYTES and type(connection) is not Pipe:
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
            receive.nbytes = header.length
            receive.end(None, source)
            self._confirm(source, header)

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
        self._empty_backlog(peer)

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
        if header.flags & COUNTED:
            self._confirm(source, header)
        elif header.kind == Kind.OFFER:
            self._dispatch(self.peers[source], Header(Kind.REFUSAL, length=room, ident=header.ident))

    # ------------------------------------------------------------------ what was kept

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
                self._bereave(receive, self.peers[arrival.source])
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
        receive.nbytes = header.length
        receive.end(None, source)
        self._confirm(source, header)

    def _next_look(self, timeout_s: float) -> float:
        if self._jobs:
            self._without_lock()
            timeout_s = 0.0
        return super()._next_look(timeout_s)

    def _without_lock(self) -> None:
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
                if self.failure is not None:
                    receive.end(self.failure)  # nobody else knows of it while it is read
                elif copied:
                    receive.end(None, source)
                    self._receipt(source, header.ident)
                else:
                    peer.readable = False
                    self._ask_for(arrival, receive)

    def _peer_left(self, source: int) -> None:
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
        if type(peer.connection) is Pipe:
            for request in peer.connection.drop():
                request.end(peer.gone)

    def _told_to_give_up(self, source: int, text: bytes) -> None:
        self._fail(read_notice(text))


def _truncation(have: int, sender: int, tag: int, room: int) -> DistBackendError:
    return DistBackendError(f"a message of {have} bytes from rank {sender} (tag {tag}) met a receive of {room} bytes")


def _nothing() -> None:
    """Do nothing."""
