"""The peers of one rank: how each is reached, and what moves the bytes there and back."""

from __future__ import annotations

import socket
from collections.abc import Callable

from rankwise.errors import DistError
from rankwise_gloo_tcp.engine.doorway import RETRY_S, Doorway
from rankwise_gloo_tcp.engine.fate import Fate
from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.peer import Peer
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.engine.seat import TICK_S
from rankwise_gloo_tcp.engine.setting import Setting
from rankwise_gloo_tcp.protocol.frames import Header
from rankwise_gloo_tcp.protocol.guards import Guards
from rankwise_gloo_tcp.protocol.parcel import Parcel
from rankwise_gloo_tcp.transport.connection import Connection, Office
from rankwise_gloo_tcp.transport.pipe import Pipe
from rankwise_gloo_tcp.transport.rings import Sleep

__all__ = ["Peers"]

#: A receive from anyone connects to everyone, so that a death is noticed; not in a larger group.
_MANY = 64
_UNIX_BUFFER_NBYTES = 1 << 20
#: How often a rank that still listens to a dead peer checks whether its time has passed.
_LISTEN_S = 0.01


class Peers:
    """All peers of one rank of one group, and the connections to them.

    Args:
        setting: What the engine is made for.
        loop: Where sockets are watched.
        fate: Whether the group has failed.
    """

    def __init__(self, setting: Setting, loop: Loop, fate: Fate) -> None:
        cards, me = setting.cards, setting.cards[setting.rank] if setting.cards else None
        self.rank, self.size = setting.rank, len(setting.names)
        self.all = [
            Peer(index, card, setting.allow_near and me is not None and me.is_near(card))
            for index, card in enumerate(cards)
        ]
        #: The connections through shared memory.
        self.pipes: list[Pipe] = []
        #: Those that have died, and whose last messages may still come.
        self.dying: list[Peer] = []
        #: Whether something may have to be sent that nobody waits for.
        self.held_up = False
        self.doorway = Doorway(setting, loop, self.all, self)
        #: Who takes the frames that come, and hears of peers that cannot be reached.
        self.office: Office
        self.on_unreachable: Callable[[Peer, DistError], object]
        self._loop, self._fate = loop, fate
        self._sleep: Sleep | None = None

    def __getitem__(self, rank: int) -> Peer:
        return self.all[rank]

    def use_pipes(self, pipes: list[Pipe], sleep: Sleep) -> None:
        """Talk to peers of this machine through shared memory; `sleep` is where this rank says that it sleeps."""
        self.pipes, self._sleep = pipes, sleep
        for pipe in pipes:
            self.all[pipe.peer].connection = pipe

    def dispatch(
        self,
        to: int,
        header: Header,
        payload: memoryview | None = None,
        request: Parcel | None = None,
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
        if peer.connection is None and peer.gone is None and peer.dead is None and not self._fate.sealed:
            self.doorway.connect(peer)

    def reach(self, rank: int | None) -> None:
        """Connect to whom a receive is waiting for, so that its death is noticed."""
        if rank is None and self.size > _MANY:
            return
        for peer in self.all if rank is None else self.all[rank : rank + 1]:
            if peer.rank != self.rank:
                self.connect(peer)

    def wake(self) -> None:
        """Have whoever sleeps look at what is new."""
        self._loop.wake()

    @property
    def all_sent(self) -> bool:
        """Whether everything has left that there is a connection for."""
        return all(peer.connection is None or peer.connection.idle for peer in self.all)

    @property
    def unconfirmed(self) -> bool:
        """Whether some of what has left is not on the peers' machines yet."""
        connections = [peer.connection for peer in self.all]
        return any(type(connection) is Connection and connection.unconfirmed for connection in connections)

    # ------------------------------------------------------------------ what the doorway brings

    def joined(self, peer: Peer, sock: socket.socket, guards: Guards | None) -> None:
        """Begin to use a connection whose other end has proved itself."""
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                sock.setsockopt(socket.SOL_SOCKET, option, _UNIX_BUFFER_NBYTES)
        connection = peer.connection = Connection(self.office, self._loop, peer.rank, sock, guards)
        frames, peer.frames = peer.frames, []
        for frame in frames:
            connection.send(*frame)

    def unreachable(self, peer: Peer, error: DistError) -> None:
        """Hear that no connection to a peer can be made."""
        self.on_unreachable(peer, error)

    # ------------------------------------------------------------------ what whoever waits looks at

    @property
    def all_in_memory(self) -> bool:
        """Whether all peers are reached through shared memory."""
        return len(self.pipes) == self.size - 1

    def may_have_news(self, request: Request) -> bool:
        """Tell whether it makes sense to look at what brings a request. Needs no lock."""
        if request.peer is None:
            return not self.pipes or any(not pipe.closed and pipe.has_news() for pipe in self.pipes)
        connection = self.all[request.peer].connection if self.all else None
        if type(connection) is not Pipe:
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
        if isinstance(connection, Pipe):
            connection.receive()
            if not connection.closed and connection.has_room():
                self._write_pipes()
        elif connection is not None:
            connection.receive()
            connection.push()
        return connection is not None

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

    def before_sleep(self, timeout_s: float) -> float:
        """Return for how long whoever moves things may sleep, having told those who write to memory."""
        if self._sleep is not None and timeout_s > 0:
            self._sleep.begin()
            if any(not pipe.closed and (pipe.has_news() or pipe.has_room()) for pipe in self.pipes):
                timeout_s = 0.0
        if self.doorway.busy:
            timeout_s = min(timeout_s, RETRY_S if self.doorway.retrying else TICK_S)
        return min(timeout_s, _LISTEN_S) if self.dying else timeout_s

    def after_sleep(self) -> None:
        """Do what no descriptor tells of."""
        if self._sleep is not None:
            self._sleep.end()
            self.read_pipes()
            self._write_pipes()
        if self.doorway.busy:
            self.doorway.tick()

    def _write_pipes(self) -> None:
        """Send on what had to wait for room."""
        for pipe in self.pipes:
            pipe.wants_room = False  # whoever still does says so again
            if not pipe.closed and not pipe.idle:
                pipe.flush()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Give all sockets and all memory back."""
        self.doorway.close()
        for peer in self.all:
            if peer.connection is not None:
                peer.connection.receive()  # unread bytes would turn the end into a reset
            if peer.connection is not None:
                peer.connection.close()
            peer.connection = None
        self.pipes = []
        if self._sleep is not None:
            self._sleep.forget()
            self._sleep = None
