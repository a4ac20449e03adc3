"""The messages of an engine: what the frames that come mean for what is received and sent."""

from __future__ import annotations

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.engine.links import GONE
from rankwise_gloo_tcp.engine.receiving import nothing
from rankwise_gloo_tcp.engine.sending import Sending
from rankwise_gloo_tcp.protocol.frames import COUNTED, Header, Kind, read_notice
from rankwise_gloo_tcp.transport.connection import Connection, Incoming
from rankwise_gloo_tcp.transport.pipe import Pipe

__all__ = ["Traffic"]


class Traffic(Sending):
    """All messages of one rank of one group."""

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
        return Incoming(None, nothing)

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
