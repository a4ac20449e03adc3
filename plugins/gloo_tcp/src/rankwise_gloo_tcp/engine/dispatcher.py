"""What frames mean: the dispatcher hands them to inbox and outbox, sends theirs, and handles peers that go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from rankwise.errors import DistError, PeerDiedError, ProtocolError
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.failure import FailureState
from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.peer import Peer, broken, death
from rankwise_gloo_tcp.engine.peers import Fetching, Peers
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.engine.silence import Silence
from rankwise_gloo_tcp.machine import peer_memory
from rankwise_gloo_tcp.machine.poller import READ
from rankwise_gloo_tcp.protocol.dtypes import Dtypes
from rankwise_gloo_tcp.protocol.frames import ANY_LENGTH, UNFINISHED, Header, Kind, parted, read_notice
from rankwise_gloo_tcp.protocol.inbox import Inbox
from rankwise_gloo_tcp.protocol.matching import Arrival
from rankwise_gloo_tcp.protocol.message import Destination, Message, nothing
from rankwise_gloo_tcp.protocol.outbox import Outbox
from rankwise_network import processes

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.channel import Channel

#: A longer message is read from the sender's memory, where that is possible: the first is for collectives, the second
#: for messages of the program, which may have to be kept there.
_READ_IN_STEP_NBYTES, _READ_NBYTES = (64 << 10) - 1, 512 << 10
#: How long the connection to a peer that has died is read on when nothing more comes. It ends by itself when all has
#: come, unless another process holds it open.
_DRAIN_S = 0.05
#: And in how many rounds of the loop at the least: one ends a handshake, another brings what came behind it.
_DRAIN_ROUNDS = 5


#: Of how many processes an engine keeps descriptors that it attends to when they are waited for.
_ATTENDED = 32


class Dispatcher:
    """The dispatcher of one engine. Its methods are called with the engine's lock held.

    It is the `FrameSender` of inbox and outbox, and the `FrameHandler` of the connections.
    """

    __slots__ = (
        *("_failure_state", "_fetching", "_peers", "_silence", "dtypes", "inbox", "last_words", "names"),
        *("outbox", "owing", "process_ends"),
    )

    def __init__(self, config: EngineConfig, peers: Peers, failure_state: FailureState, fetching: Fetching) -> None:
        self.dtypes = Dtypes()
        self.inbox = Inbox(config.rank, config.names, self, self.dtypes)
        self.outbox = Outbox(config.rank, config.names, self, self.dtypes)
        #: Whether this rank leaves because its process ends, and has not destroyed the group; by which exception.
        self.process_ends, self.last_words = False, ""
        self.names, self._peers, self._failure_state, self._fetching = config.names, peers, failure_state, fetching
        #: Whether credit waits for the next frame to a peer, or for the end of a collective.
        self.owing = False
        self._silence = Silence(config, peers)
        peers.handler, peers.on_unreachable = self, self.unreachable

    # ------------------------------------------------------------------ what the connections tell

    def frame(self, connection: Channel, header: Header) -> Destination:
        """Take a frame."""
        source, kind = connection.peer, header.kind
        if kind == Kind.MESSAGE:
            return self.inbox.message(source, header)
        if kind == Kind.PAYLOAD:
            return self.inbox.payload(source, header)
        if kind in (Kind.ABORT, Kind.DTYPE, Kind.LAST_WORDS):
            text = bytearray(header.length)
            return Destination(memoryview(text), partial(self._told, source, header, text))
        if kind == Kind.GOODBYE:
            connection.left = True
            self.peer_left(source, bool(header.flags & UNFINISHED))
        else:
            self._control(source, header)
        return Destination(None, nothing)

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
        elif header.kind == Kind.LAST_WORDS:
            self._peers[source].last_words = text.decode(errors="replace")
        else:
            self.dtypes.learn(header.dtype, bytes(text))

    def lost(self, connection: Channel, why: DistError | None = None) -> None:
        """Handle the end of a channel; `why` where it is this end that gives it up."""
        connection.close()
        peer = self._peers[connection.peer]
        if peer.connection is connection:
            self._peers.forget(peer)
        if not connection.left:
            self.peer_died(peer, why or self._broken(peer))
        for request in connection.drop():
            self.fail_request(request, peer.rank)

    def give_up_silent(self) -> None:
        """Give up the connections that are needed and on which the other machine answers nothing any more."""
        for connection, why in self._silence.fallen(self._needs):
            self.lost(connection, why)

    def _needs(self, peer: Peer, connection: Channel) -> bool:
        return connection.is_halfway or self.inbox.needs(peer.rank) or self.outbox.needs(peer.rank)

    def garbled(self, connection: Channel, error: ProtocolError) -> None:
        """Fail the group because what a channel brings makes no sense, and tell the peer why."""
        peer = self._peers[connection.peer]
        wrong = ProtocolError(f"from rank {self.names[peer.rank]} on {peer.card.host}: {error}")
        self._failure_state.fail(wrong)
        if connection.closed:
            self._peers.forget(peer)
        for request in connection.drop():
            self._failure_state.fail_request(request, wrong)

    def held_up(self) -> None:
        """Record that a frame is blocked on buffer space: the progress thread must send it."""
        self._peers.held_up = True

    # ------------------------------------------------------------------ peers that go

    def peer_left(self, source: int, process_ends: bool = False) -> None:
        """Handle `GOODBYE` of a peer that has destroyed the group, or whose process ends although it has not."""
        peer = self._peers[source]
        gone = peer.gone = death(peer, self.names[source], parted(process_ends, peer.last_words))
        self.inbox.left(source, gone)
        self.end_hopeless()
        self.outbox.left(source, gone)
        if peer.connection is not None and not peer.connection.ends_with_peer:
            for request in peer.connection.drop():
                request.end(gone)

    def end_hopeless(self) -> None:
        """End receives from any rank once all others have left: no rank is there to send."""
        # Further connections carry nothing that is received from any rank.
        others = [peer for peer in self._peers.all[: self._peers.size] if peer.rank != self._peers.rank]
        gone = [peer.gone for peer in others if peer.gone is not None]
        if others and len(gone) == len(others):
            for receive in self.inbox.matching.receives(None):
                self.inbox.withdraw(receive)
                receive.end(gone[-1])

    def peer_died(self, peer: Peer, error: DistError) -> None:
        """Fail what needs a peer that has died or cannot be reached, now or later; the rest goes on."""
        if peer.gone is None and peer.dead is None:
            self._mark_dead(peer, peer.cause or error)
            for other in self._peers.of_rank(peer):
                if other.dead is None and other.connection is None:  # none will tell
                    self.peer_is_dying(other, error)
        elif peer.dead is not None and isinstance(error, PeerDiedError):
            peer.dead = error  # until now it was a connection that had ended

    def peer_is_dying(self, peer: Peer, error: DistError) -> None:
        """Handle the death of a peer whose last messages may still be on their way."""
        if peer.connection is not None:
            peer.connection.receive()
        if peer.dead is not None or (peer.connection is not None and not peer.connection.ends_with_peer):
            self.peer_died(peer, error)
        elif peer.gone is None and peer.cause is None:
            # It may even have connected, and not been let in yet.
            peer.cause, peer.drain_until = error, monotonic() + _DRAIN_S
            peer.rounds_left, peer.heard_nbytes = _DRAIN_ROUNDS, peer.came_nbytes
            self._peers.dying.append(peer)
            self._peers.wake()

    def peer_gave_up(self, source: int, error: DistError, died: Callable[[Peer, DistError], object]) -> None:
        """Handle a peer that has given the group up.

        If it did so because another rank died, it is treated as dead too, and only operations that still need it fail:
        operations that completed anywhere already have its data, so ranks still in them must be allowed to finish.

        Args:
            source: The peer.
            error: Why.
            died: What handles a dead peer: `peer_died` if all that it had sent has been read, or `peer_is_dying`.
        """
        if not isinstance(error, PeerDiedError):
            self._failure_state.fail(error)
        elif source != self._peers.rank:
            died(self._peers[source], error)

    def mark_silent_dead(self) -> None:
        """Stop draining the channels of dead peers that have sent nothing for a while, and mark them dead."""
        dying, now = self._peers.dying, monotonic()
        for peer in dying:
            peer.rounds_left -= 1
            if peer.came_nbytes > peer.heard_nbytes:  # it still has something to say
                peer.heard_nbytes, peer.drain_until = peer.came_nbytes, now + _DRAIN_S
        # However long this process has stood still meanwhile, what is here is taken in first.
        silent = [peer for peer in dying if peer.rounds_left <= 0 and now > peer.drain_until]
        for peer in [peer for peer in dying if peer.dead or peer.gone or peer in silent]:
            dying.remove(peer)
            if peer.cause is not None:
                self.peer_died(peer, peer.cause)

    def unreachable(self, peer: Peer, error: DistError) -> None:
        """Fail what needs a peer to which no connection has come about."""
        if peer.gone is None and peer.dead is None:
            self._mark_dead(peer, peer.cause or error)

    def trouble(self, peer: Peer) -> str:
        """Say that no connection to a peer has come about, or that it has fallen silent; nothing if neither is so."""
        return self._peers.acceptor.trouble(peer) or self._silence.trouble(peer)

    def _mark_dead(self, peer: Peer, error: DistError) -> None:
        peer.dead = error
        self.inbox.died(peer.rank)
        waiting = [request for _, _, request, _ in peer.frames if request is not None]
        if peer.connection is not None and not peer.connection.ends_with_peer:  # what has gone half-way
            waiting += peer.connection.drop()
        if waiting or self.inbox.needs(peer.rank) or self.outbox.needs(peer.rank):
            self._failure_state.fail(error)
        peer.frames.clear()
        for request in waiting:
            self._failure_state.fail_request(request, error)

    # ------------------------------------------------------------------ what inbox and outbox ask

    def emit(
        self,
        to: int,
        header: Header,
        payload: memoryview | None = None,
        request: Message | None = None,
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
            self.fail_request(request, to)
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
        """Tell a peer that receives have taken so much; where credit waits, not alone while a collective goes on."""
        peer = self._peers[to]
        peer.owed_nbytes += nbytes
        if in_step and peer.connection is not None and peer.connection.credit_waits:
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
        read_from = (_READ_IN_STEP_NBYTES if in_step else _READ_NBYTES) if peer.readable else ANY_LENGTH
        return read_from if peer.connection is None else min(peer.connection.eager_nbytes, read_from)

    def address(self, to: int, request: Message) -> int:
        """Return where the peer can read a message in this process's memory, or 0 where it had better not."""
        streamed = isinstance(request, Request) and request.streamed
        if not self._peers[to].readable or streamed:
            return 0
        return peer_memory.address(request.buffer)

    def fetch(self, arrival: Arrival[Message], receive: Message) -> bool:
        """Begin to copy an offered message from its sender's memory; false where that cannot be done."""
        if not arrival.header.address or not self._peers[arrival.source].readable:
            return False
        self._fetching.add(arrival, receive)
        return True

    def fail_request(self, request: Message, source: int) -> None:
        """End a request that needs a peer which is gone, or fail the group because of it."""
        peer = self._peers[source]
        if peer.gone is not None:
            request.end(peer.gone)
        else:
            self._failure_state.fail_request(request, peer.dead or self._broken(peer))

    def _broken(self, peer: Peer) -> DistError:
        """Return the error of a connection that has ended without `GOODBYE`: the peer may live."""
        rank = self.names[peer.rank]
        return broken(rank, f"the connection to rank {rank} on {peer.card.host} has ended without a good-bye")


class Processes:
    """Descriptors of processes, in an engine's loop."""

    __slots__ = ("_descriptors", "_dispatcher", "_loop", "_parting", "_peers")

    def __init__(self, loop: Loop, peers: Peers, dispatcher: Dispatcher) -> None:
        self._loop, self._peers, self._dispatcher = loop, peers, dispatcher
        self._descriptors: dict[int, int] = {}
        self._parting: Callable[[int], tuple[bool, str] | None] = _unknown

    def watch(self, descriptors: dict[int, int], parting: Callable[[int], tuple[bool, str] | None]) -> None:
        """Notice the end of peers' processes.

        Args:
            descriptors: A descriptor of the process of each peer, released here in the end.
            parting: Returns of a peer that has gone in good order whether its process ended, and by which exception.
        """
        self._parting = parting
        for rank, fd in descriptors.items():
            self._add(rank, fd)

    def attend(self, ranks: Sequence[int]) -> None:
        """Notice the end of these processes too, and forget others that were attended to once, beyond a few."""
        for rank in ranks:
            if rank not in self._descriptors and self._peers[rank].dead is None:
                pid = self._peers[rank].card.pid
                fd = processes.watch(pid)
                if fd >= 0:
                    self._add(rank, fd)
                elif processes.is_gone(pid):
                    self._is_over(rank, "its process has ended")
        for rank in list(self._descriptors)[:-_ATTENDED]:
            self._forget(rank)

    def _add(self, rank: int, fd: int) -> None:
        self._descriptors[rank] = fd
        self._loop.add(fd, READ, partial(self._ended, rank))

    def close(self) -> None:
        """Give the descriptors back, and let go of the memory that tells who has left."""
        self._parting = _unknown
        for rank in list(self._descriptors):
            self._forget(rank)

    def _ended(self, rank: int, event: int) -> None:
        cause = processes.process_ending(self._descriptors[rank], self._peers[rank].card.pid)
        self._forget(rank)
        self._is_over(rank, cause)

    def _is_over(self, rank: int, cause: str) -> None:
        peer = self._peers[rank]
        if peer.connection is None or not peer.connection.ends_with_peer:  # else the good-bye comes through it too
            if peer.connection is not None:
                peer.connection.receive()  # what it has sent before it left
            parting = self._parting(rank)
            if parting is not None and peer.gone is None:
                ended, peer.last_words = parting
                self._dispatcher.peer_left(rank, ended)
        self._dispatcher.peer_is_dying(peer, death(peer, self._dispatcher.names[rank], cause))

    def _forget(self, rank: int) -> None:
        fd = self._descriptors.pop(rank, None)
        if fd is not None:
            self._loop.remove(fd)
            processes.release(fd)


def _unknown(rank: int) -> None:
    """Know nothing of how a rank has gone."""
