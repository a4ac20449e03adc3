"""What an engine receives: messages that come, receives that wait for them, and what is kept until they meet."""

from __future__ import annotations

from collections import deque
from threading import get_ident
from time import monotonic

from rankwise.backends import MAX_TAG, Array, as_bytes
from rankwise.errors import DistBackendError, ProtocolError
from rankwise_gloo_tcp.engine.links import Links, Setting
from rankwise_gloo_tcp.engine.peer import EAGER_NBYTES, Peer
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.machine import peer_memory
from rankwise_gloo_tcp.protocol.frames import COUNTED, READABLE, Header, Kind
from rankwise_gloo_tcp.protocol.matching import Arrival, Matching
from rankwise_gloo_tcp.transport.connection import Connection, Incoming
from rankwise_gloo_tcp.transport.pipe import Pipe

__all__ = ["Receiving", "nothing", "truncation"]

#: A message of a collective that has not got there yet is kept up to here. A longer one stands in its connection, so
#: that the memory which a large collective takes is bounded.
_KEPT_NBYTES = 512 << 10


class Receiving(Links):
    """All that comes to one rank of one group."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.matching = Matching()
        #: The messages that are read from their senders' memory, once nobody holds the lock.
        self._jobs: deque[tuple[Arrival, Request]] = deque()
        #: The receives whose payload was asked for.
        self._awaited: dict[tuple[int, int], Request] = {}
        #: The receives that have met a message of which bytes are still to come.
        self._claims: dict[int, Request] = {}

    def receive(self, array: Array, source: int | None, tag: int, waited: bool = False) -> Request:
        """Begin to receive; `waited` says that the caller waits for the end at once."""
        return self.receive_bytes(as_bytes(array), source, tag, waited)

    def receive_bytes(self, room: memoryview, source: int | None, tag: int, waited: bool = False) -> Request:
        """Begin to receive into memory."""
        request = Request(self, room, source, tag)
        with self.lock:
            if not self._refused(request):
                arrival = self.matching.post(request)
                if arrival is not None:
                    self._meet(arrival, request)
                elif source is not None and self.peers and self.peers[source].gone is not None:
                    # Its good-bye came after all that it has sent.
                    self.matching.withdraw(request)
                    request.end(self.peers[source].gone)
            if tag <= MAX_TAG and not waited:
                self._issued(request)
        self.settle()
        return request

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
            self._seated = get_ident()
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

    def withdraw(self, request: Request) -> bool:
        """Take back a receive that no message has met."""
        with self.lock:
            done = not request.done and self.matching.withdraw(request)
            if done:
                request.end(DistBackendError("the receive was withdrawn"))
        self.settle()
        return done

    # ------------------------------------------------------------------ what comes

    def _message(self, connection: Connection | Pipe, header: Header) -> Incoming | None:
        source = connection.peer
        if header.flags & COUNTED and header.length > EAGER_NBYTES:
            raise ProtocolError(f"a message of {header.length} bytes was not announced")
        receive = self.matching.arrive(source, header.tag)
        if receive is not None:
            return self._take_in(source, header, receive)
        if not header.flags & COUNTED and header.length > _KEPT_NBYTES and type(connection) is not Pipe:
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
            return Incoming(None, nothing)

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

    def _payload(self, source: int, header: Header) -> Incoming:
        receive = self._awaited.pop((source, header.ident), None)
        if receive is None or header.length > len(receive.buffer):
            raise ProtocolError("a payload came that was not asked for")
        return Incoming(receive.buffer[: header.length], lambda: receive.end(None, source), receive)

    def _too_long(self, source: int, header: Header, receive: Request) -> None:
        room = len(receive.buffer)
        receive.end(truncation(header.length, self.names[source], header.tag, room), source)
        if header.flags & COUNTED:
            self._confirm(source, header)
        elif header.kind == Kind.OFFER:
            self._dispatch(self.peers[source], Header(Kind.REFUSAL, length=room, ident=header.ident))

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

    # ------------------------------------------------------------------ what was kept

    def _meet(self, arrival: Arrival, receive: Request) -> None:
        """Give a message that was kept to a receive."""
        header = arrival.header
        if arrival.local is not None:
            if header.length > len(receive.buffer):
                error = truncation(header.length, self.names[self.rank], header.tag, len(receive.buffer))
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

    # ------------------------------------------------------------------ the end

    def _drop_receives(self) -> list[Request]:
        """Forget all receives, and the sends to oneself that have met none; return those that have not ended."""
        receives, arrivals = self.matching.clear()
        requests = [*receives, *self._awaited.values(), *self._claims.values()]
        requests += [arrival.local for arrival in arrivals if arrival.local is not None]
        requests += [receive for _, receive in list(self._jobs)]
        self._awaited.clear()
        self._claims.clear()
        return requests

    def _refused(self, request: Request, to: int | None = None) -> bool:
        """End a request that cannot succeed any more; what a rank has sent before it left can still be received."""
        if self.failure is not None:
            request.end(self.failure)
        elif self._closed:
            request.end(DistBackendError("the group has been destroyed"))
        elif to is not None and self.peers and self.peers[to].gone is not None:
            request.end(self.peers[to].gone)
        else:
            return False
        return True

    def _bereave(self, request: Request, peer: Peer) -> None:
        """End a request whose connection has gone, now or with the group."""
        error = self.failure or peer.gone
        if error is None:
            self._orphans.append(request)
        else:
            request.end(error)


def truncation(have: int, sender: int, tag: int, room: int) -> DistBackendError:
    """Return the error of a message that is longer than the receive it meets."""
    return DistBackendError(f"a message of {have} bytes from rank {sender} (tag {tag}) met a receive of {room} bytes")


def nothing() -> None:
    """Do nothing."""
