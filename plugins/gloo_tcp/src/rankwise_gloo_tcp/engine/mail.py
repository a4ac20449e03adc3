"""What frames mean: those that come are handed to inbox and outbox, and theirs are sent; peers leave, and die."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic

from rankwise.errors import DistError, PeerDiedError, ProtocolError
from rankwise_gloo_tcp.engine.fate import Fate
from rankwise_gloo_tcp.engine.fetching import Fetching
from rankwise_gloo_tcp.engine.peer import GONE, Peer, death
from rankwise_gloo_tcp.engine.peers import Peers
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.engine.setting import Setting
from rankwise_gloo_tcp.machine import peer_memory
from rankwise_gloo_tcp.protocol.dtypes import Dtypes
from rankwise_gloo_tcp.protocol.frames import Header, Kind, read_notice
from rankwise_gloo_tcp.protocol.inbox import Inbox
from rankwise_gloo_tcp.protocol.matching import Arrival
from rankwise_gloo_tcp.protocol.outbox import Outbox
from rankwise_gloo_tcp.protocol.parcel import Incoming, Parcel, nothing
from rankwise_gloo_tcp.transport.connection import Connection
from rankwise_gloo_tcp.transport.pipe import Pipe

__all__ = ["Mail"]

#: A longer message is read from the sender's memory, where that is possible: the first is for collectives, the second
#: for messages of the program, which may have to be kept there.
_READ_IN_STEP_NBYTES, _READ_NBYTES = (64 << 10) - 1, 512 << 10
_ANY_LENGTH = 1 << 62
#: How long the connection to a peer that has died is read on when nothing more comes. It ends by itself when all has
#: come, unless another process holds it open.
_LAST_WORDS_S = 0.05
#: And in how many rounds of the loop at the least: one ends a handshake, another brings what came behind it.
_LAST_ROUNDS = 5


class Mail:
    """All messages of one rank of one group. Its methods are called with the engine's lock held.

    It is the `Carrier` of inbox and outbox, and the `Office` of the connections.
    """

    def __init__(self, setting: Setting, peers: Peers, fate: Fate, fetching: Fetching) -> None:
        self.dtypes = Dtypes()
        self.inbox = Inbox(setting.rank, setting.names, self, self.dtypes)
        self.outbox = Outbox(setting.rank, setting.names, self, self.dtypes)
        self.names, self._peers, self._fate, self._fetching = setting.names, peers, fate, fetching
        #: Whether credit waits for the next frame to a peer, or for the end of a collective.
        self.owing = False
        peers.office, peers.on_unreachable = self, self.unreachable

    # ------------------------------------------------------------------ what the connections tell

    def frame(self, connection: Connection | Pipe, header: Header) -> Incoming:
        """Take a frame."""
        source, kind = connection.peer, header.kind
        if kind == Kind.MESSAGE:
            return self.inbox.message(source, header)
        if kind == Kind.PAYLOAD:
            return self.inbox.payload(source, header)
        if kind in (Kind.ABORT, Kind.DTYPE):
            text = bytearray(header.length)
            return Incoming(memoryview(text), partial(self._told, source, header, text))
        if kind == Kind.GOODBYE:
            connection.left = True
            self.peer_left(source)
        else:
            self._control(source, header)
        return Incoming(None, nothing)

    def _control(self, source: int, header: Header) -> None:
        kind = header.kind
        if kind == Kind.OFFER:
            self.inbox.offer(source, header)
        elif kind == Kind.REQUEST:
            self.outbox.requested(source, header)
        elif kind == Kind.RECEIPT:
            self.outbox.received(source, header)
        elif kind == Kind.REFUSAL:
            self.outbox.refused(source, header)
        elif kind == Kind.CREDIT:
            self.outbox.credited(source, header)
        elif kind == Kind.LEAVING:
            self.inbox.leaving(source)

    def _told(self, source: int, header: Header, text: bytearray) -> None:
        if header.kind == Kind.ABORT:
            self.peer_gave_up(source, read_notice(bytes(text)), self.peer_died)
        else:
            self.dtypes.learn(header.dtype, bytes(text))

    def lost(self, connection: Connection | Pipe) -> None:
        """Hear that a connection has ended."""
        connection.close()
        peer = self._peers[connection.peer]
        if peer.connection is connection:
            peer.connection = None
        if not connection.left:
            self.peer_died(peer, death(peer, self.names[peer.rank], GONE))
        for request in connection.drop():
            self.bereave(request, peer.rank)

    def garbled(self, connection: Connection | Pipe, error: ProtocolError) -> None:
        """Hear that what a connection brings makes no sense: the group fails, and the peer is told why."""
        peer = self._peers[connection.peer]
        wrong = ProtocolError(f"from rank {self.names[peer.rank]} on {peer.card.host}: {error}")
        self._fate.fail(wrong)
        if connection.closed:
            peer.connection = None
        for request in connection.drop():
            self._fate.bereave(request, wrong)

    def held_up(self) -> None:
        """Hear that something waits for room, and is to be sent whether or not anybody waits for it."""
        self._peers.held_up = True

    # ------------------------------------------------------------------ peers that go

    def peer_left(self, source: int) -> None:
        """Hear that a peer has destroyed the group."""
        peer = self._peers[source]
        gone = peer.gone = death(peer, self.names[source], "it has destroyed the group")
        self.inbox.left(source, gone)
        self.end_hopeless()
        self.outbox.left(source, gone)
        if type(peer.connection) is Pipe:
            for request in peer.connection.drop():
                request.end(gone)

    def end_hopeless(self) -> None:
        """End receives from anyone once all others have left: nobody is there to send."""
        others = [peer for peer in self._peers.all if peer.rank != self._peers.rank]
        gone = [peer.gone for peer in others if peer.gone is not None]
        if others and len(gone) == len(others):
            for receive in self.inbox.matching.receives(None):
                self.inbox.withdraw(receive)
                receive.end(gone[-1])

    def peer_died(self, peer: Peer, error: DistError) -> None:
        """Hear that a peer has died: what needs it fails now, or later when something does; the rest goes on."""
        if peer.gone is None and peer.dead is None:
            self._bury(peer, peer.cause or error)

    def peer_is_dying(self, peer: Peer, error: DistError) -> None:
        """Hear that a peer has died whose last messages may still be on their way."""
        if peer.connection is not None:
            peer.connection.receive()
        if type(peer.connection) is Pipe:
            self.peer_died(peer, error)
        elif peer.gone is None and peer.dead is None and peer.cause is None:
            # It may even have dialled, and not been let in yet.
            peer.cause, peer.last_words_until = error, monotonic() + _LAST_WORDS_S
            peer.rounds_left = _LAST_ROUNDS
            self._peers.dying.append(peer)
            self._peers.wake()

    def peer_gave_up(self, source: int, error: DistError, died: Callable[[Peer, DistError], object]) -> None:
        """Hear that a peer has given the group up.

        If it did so because another has died, it is as good as dead itself, and only what needs it fails: it has done
        its part of everything that has come to an end anywhere, and whoever is still at it must be let go on.

        Args:
            source: The peer.
            error: Why.
            died: What hears of a dead peer: `peer_died` if all that it had sent has been read, or `peer_is_dying`.
        """
        if not isinstance(error, PeerDiedError):
            self._fate.fail(error)
        elif source != self._peers.rank:
            died(self._peers[source], error)

    def bury_the_dying(self) -> None:
        """Wait for the last words of peers no longer whose time has passed."""
        dying, now = self._peers.dying, monotonic()
        for peer in dying:
            peer.rounds_left -= 1
            came_nbytes = peer.connection.came_nbytes if type(peer.connection) is Connection else 0
            if came_nbytes > peer.heard_nbytes:  # it still has something to say
                peer.heard_nbytes, peer.last_words_until = came_nbytes, now + _LAST_WORDS_S
        # However long this process has stood still meanwhile, what is here is taken in first.
        silent = [peer for peer in dying if peer.rounds_left <= 0 and now > peer.last_words_until]
        for peer in [peer for peer in dying if peer.dead or peer.gone or peer in silent]:
            dying.remove(peer)
            if peer.cause is not None:
                self.peer_died(peer, peer.cause)

    def unreachable(self, peer: Peer, error: DistError) -> None:
        """Hear that no connection to a peer can be made."""
        if peer.gone is None and peer.dead is None:
            self._bury(peer, error)

    def _bury(self, peer: Peer, error: DistError) -> None:
        peer.dead = error
        self.inbox.died(peer.rank)
        waiting = [request for _, _, request, _ in peer.frames if request is not None]
        if type(peer.connection) is Pipe:  # what has gone half-way
            waiting += peer.connection.drop()
        if waiting or self.inbox.needs(peer.rank) or self.outbox.needs(peer.rank):
            self._fate.fail(error)
        peer.frames.clear()
        for request in waiting:
            self._fate.bereave(request, error)

    # ------------------------------------------------------------------ what inbox and outbox ask

    def emit(
        self,
        to: int,
        header: Header,
        payload: memoryview | None = None,
        request: Parcel | None = None,
        prefix: bytes = b"",
    ) -> bool:
        """Send a frame; a request whose peer is gone ends."""
        peer = self._peers[to]
        if peer.gone is None and peer.dead is None:
            if peer.owed_nbytes:
                self.pay(peer)
            self._peers.dispatch(to, header, payload, request, prefix)
            return True
        if request is not None:
            self.bereave(request, to)
        return False

    def reply(self, to: int, header: Header) -> bool:
        """Send a frame about something that has come from a peer; false if the peer is gone."""
        peer = self._peers[to]
        if peer.gone is not None or peer.dead is not None or peer.connection is None:
            return False
        if peer.owed_nbytes:
            self.pay(peer)
        peer.connection.send(header)
        return True

    def give_credit(self, to: int, nbytes: int, in_step: bool) -> None:
        """Tell a peer that receives have taken so much, but over a socket not alone while a collective goes on."""
        peer = self._peers[to]
        peer.owed_nbytes += nbytes
        if in_step and type(peer.connection) is Connection:
            self.owing = True
        else:
            self.pay(peer)

    def pay_credit(self) -> None:
        """Send all the credit that is owed, as a collective has ended."""
        self.owing = False
        for peer in self._peers.all:
            if peer.owed_nbytes:
                self.pay(peer)

    def pay(self, peer: Peer) -> None:
        """Send a peer the credit that it is owed."""
        nbytes, peer.owed_nbytes = peer.owed_nbytes, 0
        if peer.connection is not None and peer.gone is None:
            peer.connection.send(Header(Kind.CREDIT, length=nbytes))

    def refresh(self, to: int) -> None:
        """Take in what has come from a peer, as there may be credit among it."""
        connection = self._peers[to].connection
        if connection is not None:
            connection.receive()

    def unasked_nbytes(self, to: int, in_step: bool) -> int:
        """Return the length up to which a message travels unasked."""
        peer = self._peers[to]
        read_from = (_READ_IN_STEP_NBYTES if in_step else _READ_NBYTES) if peer.readable else _ANY_LENGTH
        return min(peer.connection.eager_nbytes, read_from) if type(peer.connection) is Pipe else read_from

    def address(self, to: int, request: Parcel) -> int:
        """Return where the peer can read a message in this process's memory, or 0 where it had better not."""
        streamed = isinstance(request, Request) and request.streamed
        if not self._peers[to].readable or streamed:
            return 0
        return peer_memory.address(request.buffer)

    def fetch(self, arrival: Arrival[Parcel], receive: Parcel) -> bool:
        """Begin to copy an offered message from its sender's memory; false where that cannot be done."""
        if not arrival.header.address or not self._peers[arrival.source].readable:
            return False
        self._fetching.add(arrival, receive)
        return True

    def bereave(self, request: Parcel, source: int) -> None:
        """End a request that needs a peer which is gone."""
        peer = self._peers[source]
        if peer.gone is not None:
            request.end(peer.gone)
        else:
            self._fate.bereave(request, peer.dead or death(peer, self.names[source], GONE))
