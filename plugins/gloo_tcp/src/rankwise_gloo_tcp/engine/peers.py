"""The peers of one rank: how each is reached, and what moves the bytes there and back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rankwise.errors import DistError
from rankwise_gloo_tcp.engine.acceptor import RETRY_S, Acceptor
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.failure import FailureState
from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.peer import Peer
from rankwise_gloo_tcp.engine.progress import TICK_S
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.machine import peer_memory
from rankwise_gloo_tcp.protocol.frames import Header
from rankwise_gloo_tcp.protocol.matching import Arrival
from rankwise_gloo_tcp.protocol.message import Message
from rankwise_gloo_tcp.transport.rings import Sleep

if TYPE_CHECKING:
    from rankwise_gloo_tcp.protocol.guards import Guards
    from rankwise_gloo_tcp.transport.channel import Channel, FrameHandler

#: A receive from anyone connects to everyone, so that a death is noticed; not in a larger group.
_MANY = 64
_UNIX_BUFFER_NBYTES = 1 << 20
#: How often a rank that drains the channel of a dead peer checks whether its time has passed.
LISTEN_S = 0.01

#: Called with a message, its receive, and whether the bytes were copied.
Report = Callable[[Arrival[Message], Message, bool], object]


class Peers:
    """All peers of one rank of one group, and the connections to them.

    Each further connection that a pair of ranks may have leads to a peer of its own, as if it were another rank: that
    number `k` to rank `r` of `n` is to peer `k * n + r`, whose peer number `k` times `n` and this rank is.

    Args:
        config: What the engine is made for.
        loop: Where sockets are watched.
        failure_state: Whether the group has failed.
    """

    __slots__ = (
        *("_failure_state", "_loop", "_sleep", "acceptor", "all", "armed", "dying", "greeting", "handler"),
        *("held_up", "moved", "on_disarmed", "on_unreachable", "pipes", "rank", "size"),
    )

    def __init__(self, config: EngineConfig, loop: Loop, failure_state: FailureState) -> None:
        cards, me = config.cards, config.cards[config.rank] if config.cards else None
        self.rank, self.size = config.rank, config.size
        self.all = [
            Peer(index, card, config.allow_near and me is not None and me.is_near(card))
            for index, card in enumerate(cards)
        ]
        #: The channels through memory, of which no descriptor tells.
        self.pipes: Sequence[Channel] = []
        #: How many bytes have gone and come through channels that are closed, by way.
        self.moved: dict[str, int] = {}
        #: Peers that have died, and whose last messages may still come.
        self.dying: list[Peer] = []
        #: What goes over a connection first that comes about once the group has failed here: why.
        self.greeting: tuple[Header, bytes] | None = None
        #: Whether something may have to be sent that no caller waits for.
        self.held_up = False
        self.acceptor = Acceptor(config, loop, self.all, self)
        #: What takes the frames that come, and handles peers that cannot be reached.
        self.handler: FrameHandler
        self.on_unreachable: Callable[[Peer, DistError], object]
        #: Whether the idle poller sleeps until something comes, and is told when somebody else takes it in.
        self.armed = False
        self.on_disarmed: Callable[[], object] = _nothing
        self._loop, self._failure_state = loop, failure_state
        self._sleep: Sleep | None = None

    def __getitem__(self, rank: int) -> Peer:
        return self.all[rank]

    def of_rank(self, peer: Peer) -> list[Peer]:
        """Return all peers that are the rank which one of them is."""
        return self.all[peer.rank % self.size :: self.size]

    def use_pipes(self, pipes: Sequence[Channel], sleep: Sleep) -> None:
        """Talk to peers of this machine through shared memory; `sleep` is where this rank says that it sleeps."""
        self.pipes, self._sleep = pipes, sleep
        for pipe in pipes:
            self.all[pipe.peer].connection = pipe

    @property
    def sleep_at(self) -> int:
        """Where in the memory shared with peers this rank says that it sleeps, in bytes; 0 where there is none."""
        return 0 if self._sleep is None else self._sleep.place

    def dispatch(
        self,
        to: int,
        header: Header,
        payload: memoryview | None = None,
        request: Message | None = None,
        prefix: bytes = b"",
    ) -> None:
        """Send a frame, over a connection that is made if there is none."""
        peer = self.all[to]
        if peer.connection is not None:
            peer.connection.send(header, payload, request, prefix)
        else:
            peer.frames.append((header, payload, request, prefix))
            self.connect(peer)

    def connect(self, peer: Peer) -> None:
        """Begin to connect to a peer, unless there is no point."""
        if peer.connection is None and peer.gone is None and peer.dead is None and not self._failure_state.closed:
            self.acceptor.connect(peer)

    def reach(self, rank: int | None) -> None:
        """Connect to the peer that a receive is waiting for, so that its death is noticed."""
        if rank is None and self.size > _MANY:
            return
        for peer in self.all[: self.size] if rank is None else self.all[rank : rank + 1]:
            if peer.rank != self.rank:
                self.connect(peer)

    def wake(self) -> None:
        """Wake the thread that sleeps in the loop."""
        self._loop.wake()

    @property
    def all_sent(self) -> bool:
        """Whether everything has left that there is a connection for."""
        return all(peer.connection is None or peer.connection.idle for peer in self.all)

    @property
    def unconfirmed(self) -> bool:
        """Whether some of what has left is not on the peers' machines yet."""
        return any(peer.connection is not None and peer.connection.unconfirmed for peer in self.all)

    def forget(self, peer: Peer) -> None:
        """Use a peer's channel no more."""
        if peer.connection is not None:
            way = peer.connection.way
            self.moved[way] = self.moved.get(way, 0) + peer.connection.moved_nbytes
            peer.connection = None

    # ------------------------------------------------------------------ what the acceptor brings

    def joined(self, peer: Peer, sock: socket.socket, guards: Guards | None) -> None:
        """Begin to use a connection whose other end has proved itself."""
        from rankwise_gloo_tcp.transport.connection import Connection  # which ranks that share memory never load

        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                sock.setsockopt(socket.SOL_SOCKET, option, _UNIX_BUFFER_NBYTES)
        connection = peer.connection = Connection(self.handler, self._loop, peer.rank, sock, guards)
        frames, peer.frames = peer.frames, []
        for frame in frames:
            connection.send(*frame)
        if self.greeting is not None:
            header, text = self.greeting
            connection.send(header, memoryview(text))
        if connection.way == "tls":
            connection.receive()  # what has come with the end of the handshake

    def unreachable(self, peer: Peer, error: DistError) -> None:
        """Fail what needs a peer to which no connection has come about."""
        self.on_unreachable(peer, error)

    # ------------------------------------------------------------------ what a thread that waits looks at

    @property
    def all_in_memory(self) -> bool:
        """Whether all peers are reached through shared memory."""
        return len(self.pipes) == self.size - 1

    def may_have_news(self, request: Request) -> bool:
        """Tell whether it makes sense to look at what brings a request. Needs no lock."""
        if request.peer is None:
            return not self.pipes or any(not pipe.closed and pipe.has_news() for pipe in self.pipes)
        connection = self.all[request.peer].connection if self.all else None
        if connection is None or not connection.in_memory:
            return True
        # A look costs less than to ask for the time.
        for _ in range(20):
            if request.done or connection.closed or connection.has_news() or connection.has_room():
                return True
        return False

    def look_at(self, request: Request) -> bool:
        """Take in what has come for a request; false if no connection is known to bring it."""
        if request.peer is None:
            self.read_pipes()
            return bool(self.pipes)
        connection = self.all[request.peer].connection if self.all else None
        if connection is None:
            return False
        connection.receive()
        if not connection.in_memory:
            connection.push()
        elif not connection.closed and connection.has_room():
            self._write_pipes()
        return True

    def read_pipes(self) -> None:
        """Take in what has come through shared memory."""
        for pipe in self.pipes:
            if not pipe.closed and pipe.has_news():
                pipe.receive()

    def take_in(self) -> None:
        """Take in what has come from anyone."""
        for peer in self.all:
            if peer.connection is not None and not peer.connection.closed:
                peer.connection.receive()

    def any_gone(self) -> bool:
        """Tell whether a peer has died or left."""
        return any(peer.dead is not None or peer.gone is not None for peer in self.all)

    def arm(self) -> bool:
        """Have the loop's descriptor tell of whatever comes next; false if there is something to be done before."""
        if self.acceptor.busy or self.dying:
            return False
        self.armed = self.before_sleep(1.0) > 0
        return self.armed

    def disarm(self) -> None:
        """Have the idle poller look again, as somebody else has."""
        if self.armed:
            self.armed = False
            self.on_disarmed()

    def before_sleep(self, timeout_s: float) -> float:
        """Tell the ranks that write to this one's memory that it sleeps; return for how long it may."""
        if self._sleep is not None and timeout_s > 0:
            self._sleep.begin()
            if any(not pipe.closed and (pipe.has_news() or pipe.has_room()) for pipe in self.pipes):
                timeout_s = 0.0
        if self.acceptor.busy:
            timeout_s = min(timeout_s, RETRY_S if self.acceptor.retrying else TICK_S)
        return min(timeout_s, LISTEN_S) if self.dying else timeout_s

    def after_sleep(self) -> None:
        """Handle what no descriptor tells of."""
        self.disarm()
        if self._sleep is not None:
            self._sleep.end()
            self.read_pipes()
            self._write_pipes()
        if self.acceptor.busy:
            self.acceptor.tick()

    def _write_pipes(self) -> None:
        """Send on what had to wait for room."""
        for pipe in self.pipes:
            pipe.push()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Give all sockets and all memory back."""
        self.acceptor.close()
        for peer in self.all:
            if peer.connection is not None:
                peer.connection.receive()  # unread bytes would turn the end into a reset
            if peer.connection is not None:
                peer.connection.close()
            self.forget(peer)
        self.pipes = []
        self._sleep = None


class Fetching:
    """Offered messages that are to be copied from their senders' memory."""

    __slots__ = ("_failure_state", "_jobs", "_lock", "_peers", "moved_nbytes")

    def __init__(self, lock: threading.Lock, peers: list[Peer], failure_state: FailureState) -> None:
        self._lock, self._peers, self._failure_state = lock, peers, failure_state
        self.moved_nbytes = 0
        self._jobs: list[tuple[Arrival[Message], Message]] = []

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, arrival: Arrival[Message], receive: Message) -> None:
        """Note a copy to be made."""
        self._jobs.append((arrival, receive))

    def requests(self) -> list[Message]:
        """Return the receives whose messages are not being copied yet."""
        return [receive for _, receive in list(self._jobs)]

    def run(self, report: Report) -> None:
        """Make all copies."""
        while self._jobs:
            arrival, receive = self._jobs[0]
            try:
                self._jobs.pop(0)
                self._read(arrival, receive, report)
            except BaseException:  # what an interrupt raises
                with self._lock:
                    self._failure_state.strand(receive)
                raise

    def _read(self, arrival: Arrival[Message], receive: Message, report: Report) -> None:
        """Make a copy; nobody else knows of its receive meanwhile."""
        peer, header = self._peers[arrival.source], arrival.header
        copied = peer_memory.read(peer.card.pid, header.address, receive.buffer[: header.length], lambda: receive.done)
        with self._lock:
            if receive.done:
                return
            if self._failure_state.failure is not None:
                receive.end(self._failure_state.failure)
                return
            peer.readable = peer.readable and copied
            self.moved_nbytes += header.length * copied
            report(arrival, receive, copied)


def _nothing() -> None:
    """Do nothing."""
