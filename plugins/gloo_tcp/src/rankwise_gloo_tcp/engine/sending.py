"""What an engine sends: at once, or when the peer has asked for it, and what waits until the peer has room."""

from __future__ import annotations

from itertools import count

from rankwise.backends import MAX_TAG, Array, as_bytes
from rankwise.errors import DistError, ProtocolError
from rankwise_gloo_tcp.engine.links import Setting
from rankwise_gloo_tcp.engine.peer import EAGER_NBYTES, Peer
from rankwise_gloo_tcp.engine.receiving import Receiving, truncation
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.machine import peer_memory
from rankwise_gloo_tcp.protocol.frames import COUNTED, READABLE, Header, Kind
from rankwise_gloo_tcp.protocol.matching import Arrival
from rankwise_gloo_tcp.transport.pipe import Pipe

__all__ = ["Sending"]

#: From here on a message of a collective is read from the sender's memory, where that is possible; and one of the
#: program, which may have to be kept there.
_READ_NBYTES, _READ_COUNTED_NBYTES = 64 << 10, 512 << 10


class Sending(Receiving):
    """All that one rank of one group sends, to itself too."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._idents = count(1)
        #: The sends whose end the peer has to tell.
        self._outgoing: dict[tuple[int, int], Request] = {}

    def send(self, array: Array, to: int, tag: int, waited: bool = False) -> Request:
        """Begin to send; `waited` says that the caller waits for the end at once."""
        return self.send_bytes(as_bytes(array), to, tag, waited)

    def send_bytes(self, data: memoryview, to: int, tag: int, waited: bool = False, prefix: bytes = b"") -> Request:
        """Begin to send memory; for collectives also with something in front of it."""
        request = Request(self, data, to, tag)
        # Who waits can as well write while the other reads; who does not had better leave it to the other.
        request.streamed = waited and self.spin_s > 0
        with self.lock:
            if self._refused(request, to):
                pass
            elif to == self.rank:
                self._send_to_self(request)
            elif tag > MAX_TAG:
                self._send_in_step(self.peers[to], request, prefix)
            else:
                self._send_counted(self.peers[to], request)
            if tag <= MAX_TAG and not waited:
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

    def _send_to_self(self, request: Request) -> None:
        header = Header(Kind.MESSAGE, 0, request.tag, len(request.buffer))
        arrival = Arrival(self.rank, header, request.buffer, complete=True, local=request)
        receive = self.matching.arrive(self.rank, request.tag)
        if receive is None:
            self.matching.keep(arrival)
        else:
            self._meet(arrival, receive)

    def _send_in_step(self, peer: Peer, request: Request, prefix: bytes) -> None:
        """Send a message of a collective: its receiver waits for it, and nobody has to tell that it was taken."""
        nbytes, pipe = len(request.buffer), peer.connection
        if (peer.readable and nbytes >= _READ_NBYTES) or (type(pipe) is Pipe and nbytes > pipe.eager_nbytes):
            self._announce(peer, request)
        else:
            header = Header(Kind.MESSAGE, 0, request.tag, nbytes + len(prefix))
            self._dispatch(peer, header, request.buffer, request, prefix)

    def _send_counted(self, peer: Peer, request: Request) -> None:
        """Send a message of the program, after those before it, once the peer has room for it."""
        if peer.backlog or self._is_full(peer, len(request.buffer)):
            peer.backlog.append(request)
        else:
            self._announce(peer, request)

    def _announce(self, peer: Peer, request: Request) -> None:
        """Send a message whose end the peer has to tell."""
        nbytes, ident = len(request.buffer), next(self._idents)
        pipe = peer.connection
        if type(pipe) is Pipe and nbytes <= pipe.eager_nbytes and request.tag <= MAX_TAG:
            pipe.begin(nbytes)  # shared memory tells what the peer has taken
            pipe.send(Header(Kind.MESSAGE, COUNTED, request.tag, nbytes), request.buffer, request)
            return
        peer.begin(nbytes)
        if nbytes <= (_READ_COUNTED_NBYTES if peer.readable else EAGER_NBYTES) and type(pipe) is not Pipe:
            self._dispatch(peer, Header(Kind.MESSAGE, COUNTED, request.tag, nbytes), request.buffer, request)
            return
        self._outgoing[peer.rank, ident] = request
        if peer.readable and not request.streamed:
            address = peer_memory.address(request.buffer)
            self._dispatch(peer, Header(Kind.OFFER, READABLE, request.tag, nbytes, ident, address))
        else:
            self._dispatch(peer, Header(Kind.OFFER, 0, request.tag, nbytes, ident))

    # ------------------------------------------------------------------ what the peer tells of it

    def _requested(self, source: int, header: Header) -> None:
        request = self._outgoing.get((source, header.ident))
        if request is None or len(request.buffer) != header.length:
            raise ProtocolError("a message was asked for that was not offered")
        self._outgoing.pop((source, header.ident))
        peer = self.peers[source]
        peer.finish(len(request.buffer))
        self._dispatch(peer, Header(Kind.PAYLOAD, 0, 0, header.length, header.ident), request.buffer, request)
        self._empty_backlog(peer)

    def _refusal(self, source: int, header: Header) -> None:
        request = self._outgoing.get((source, header.ident))
        if request is not None:
            error = truncation(len(request.buffer), self.names[self.rank], request.tag, header.length)
            self._finish_outgoing(source, header.ident, error)

    def _finish_outgoing(self, source: int, ident: int, error: DistError | None) -> None:
        request = self._outgoing.pop((source, ident), None)
        if request is None:
            return  # given up meanwhile
        peer = self.peers[source]
        peer.finish(len(request.buffer))
        request.end(error)
        self._empty_backlog(peer)

    # ------------------------------------------------------------------ what waits for room

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
