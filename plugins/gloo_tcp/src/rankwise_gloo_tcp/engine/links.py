"""The connections of an engine: made when they are first needed, by either side, and one to each peer."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import NamedTuple

from rankwise.errors import DistError, DistNetworkError, PeerDiedError, ProtocolError
from rankwise.watch.liveness import ending
from rankwise_gloo_tcp.engine.peer import Peer
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.engine.seat import TICK_S, Seat
from rankwise_gloo_tcp.machine.poller import READ, WRITE
from rankwise_gloo_tcp.protocol.frames import Header, read_notice
from rankwise_gloo_tcp.setup.cards import Card
from rankwise_gloo_tcp.transport.connection import Connection, Guards, Incoming
from rankwise_gloo_tcp.transport.knocking import GUEST_PATIENCE_S, MAX_GUESTS, Dial, Guest
from rankwise_gloo_tcp.transport.pipe import Pipe, Sleep

__all__ = ["GONE", "Links", "Setting"]

_RETRY_S = 0.005
#: A receive from anyone connects to everyone, so that a death is noticed; not in a larger group.
_MANY = 64

#: One text, however it is noticed, so that all ranks raise the same error.
GONE = "its connections have ended"


class Setting(NamedTuple):
    """What an engine is made for.

    Attributes:
        rank: This rank.
        cards: Where each rank listens.
        key: The key of the handshake.
        guarded: Whether the headers of TCP connections are guarded.
        names: The global rank of each rank.
        timeout_s: How long a wait without a time-out of its own may take.
        on_failure: Called once, without the lock, when the group has failed.
        allow_near: Whether Unix sockets may be used.
    """

    rank: int
    cards: list[Card]
    key: bytes
    guarded: bool
    names: tuple[int, ...]
    timeout_s: float
    on_failure: Callable[[DistError], object]
    allow_near: bool


class Links(Seat):
    """All connections of one rank of one group."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.names, setting.timeout_s, setting.on_failure)
        rank, cards = setting.rank, setting.cards
        self.rank, self.size, self.key, self.guarded = rank, len(setting.names), setting.key, setting.guarded
        #: Whether a Unix socket's queue was full and is to be tried again.
        self._retrying = False
        #: Whether the payloads of those connections are guarded too.
        self.guards_payloads = bool(cards) and cards[rank].integrity == "full"
        self._listeners: list[socket.socket] = []
        self._processes: dict[int, int] = {}
        self._guests: dict[Guest, None] = {}
        #: The connections through shared memory, and where this rank says that it sleeps.
        self.pipes: list[Pipe] = []
        self._sleep: Sleep | None = None
        self._given_up: Callable[[], bytes | None] = lambda: None
        me = cards[rank] if cards else None
        self.peers = [
            Peer(index, card, setting.allow_near and me is not None and me.is_near(card))
            for index, card in enumerate(cards)
        ]

    def listen(self, sock: socket.socket, near: bool) -> None:
        """Take in guests from a listening socket, which the engine closes in the end."""
        sock.setblocking(False)
        self._listeners.append(sock)
        self.watch_fd(sock, READ, partial(self._accept, sock, near))

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

    def use_pipes(self, pipes: list[Pipe], sleep: Sleep, given_up: Callable[[], bytes | None]) -> None:
        """Talk to peers of this machine through shared memory.

        Args:
            pipes: The connections.
            sleep: Where this rank says that it sleeps.
            given_up: Returns the notice of a rank that has given the group up.
        """
        with self.lock:
            self.pipes, self._sleep, self._given_up = pipes, sleep, given_up
            self._moves_by_looking = len(pipes) == self.size - 1
            for pipe in pipes:
                self.peers[pipe.peer].connection = pipe

    @property
    def bell(self) -> int:
        """The descriptor that wakes this rank when something is written to it."""
        return self._wake_write

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

    def _dispatch(
        self,
        peer: Peer,
        header: Header,
        payload: memoryview | None = None,
        request: Request | None = None,
        prefix: bytes = b"",
    ) -> None:
        """Send a frame, over a connection that is made if there is none."""
        if peer.connection is not None:
            peer.connection.send(header, payload, request, prefix)
        else:
            peer.frames.append((header, payload, request, prefix))
            self._connect(peer)

    def _all_sent(self) -> bool:
        return all(peer.connection is None or peer.connection.idle for peer in self.peers)

    # ------------------------------------------------------------------ dialling

    def _connect(self, peer: Peer) -> None:
        if peer.dial is None and peer.connection is None and self.failure is None and not self._failing:
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
            self._fail(self._death(peer, GONE))
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
            self._fail(self._death(peer, GONE))

    def dial_crossed(self, dial: Dial) -> None:
        """The other has dialled too, and its connection will come."""
        self._drop_dial(self.peers[dial.peer])

    def _reach(self, rank: int | None) -> None:
        """Connect to whom a receive is waiting for, so that its death is noticed."""
        with self.lock:
            if self.failure is not None or self._failing or (rank is None and self.size > _MANY):
                return
            for peer in self.peers if rank is None else self.peers[rank : rank + 1]:
                if peer.rank != self.rank and peer.gone is None:
                    self._connect(peer)

    # ------------------------------------------------------------------ guests

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
        for frame in frames:
            peer.connection.send(*frame)

    # ------------------------------------------------------------------ the loop

    def _may_have_news(self, request: Request) -> bool:
        if request.peer is None:
            return not self.pipes or any(not pipe.closed and pipe.has_news() for pipe in self.pipes)
        connection = self.peers[request.peer].connection if self.peers else None
        if type(connection) is not Pipe:
            return True
        # A look costs less than to ask for the time.
        for _ in range(20):
            if request.done or connection.closed or connection.has_news() or connection.has_room():
                return True
        return False

    def _look_at(self, request: Request) -> bool:
        if request.peer is None:
            self._read_pipes()
            return bool(self.pipes)
        connection = self.peers[request.peer].connection if self.peers else None
        if isinstance(connection, Pipe):
            connection.receive()
            if not connection.closed and connection.has_room():
                self._write_pipes()
        elif connection is not None:
            connection.receive()
            connection.push()
        return connection is not None

    def _read_pipes(self) -> None:
        for pipe in self.pipes:
            if not pipe.closed and pipe.has_news():
                pipe.receive()

    def _next_look(self, timeout_s: float) -> float:
        if self._sleep is not None and timeout_s > 0:
            self._sleep.begin()
            if any(not pipe.closed and (pipe.has_news() or pipe.has_room()) for pipe in self.pipes):
                timeout_s = 0.0
        if self._guests:
            timeout_s = min(timeout_s, TICK_S)
        return min(timeout_s, _RETRY_S) if self._retrying else timeout_s

    def _after_look(self) -> None:
        if self._sleep is not None:
            self._sleep.end()
            self._read_pipes()
            self._write_pipes()
            said = self._given_up()
            if said is not None:
                self._fail(read_notice(said))
        if not (self._retrying or self._guests):
            return
        now = monotonic()
        for guest in [guest for guest in self._guests if now - guest.since > GUEST_PATIENCE_S]:
            self.guest_left(guest)
        if self._retrying:
            self._retrying = False
            for peer in self.peers:
                if peer.dial is not None and peer.dial.again:
                    self._try(peer, peer.dial.begin)

    # ------------------------------------------------------------------ the end

    def _death(self, peer: Peer, why: str) -> PeerDiedError:
        return PeerDiedError(self.names[peer.rank], peer.card.host, why)

    def _process_ended(self, rank: int, has_left: Callable[[int], bool], event: int) -> None:
        peer = self.peers[rank]
        cause = ending(self._processes[rank], peer.card.pid)
        self._forget_process(rank)
        if peer.connection is not None:
            peer.connection.receive()  # its last word may be a good-bye
        if peer.gone is None and has_left(rank):
            self._peer_left(rank)
        if peer.gone is None:
            self._fail(self._death(peer, cause))

    def _forget_process(self, rank: int) -> None:
        fd = self._processes.pop(rank, None)
        if fd is not None:
            self._handlers.pop(fd, None)
            self._poller.unregister(fd)
            os.close(fd)

    def _fail(self, error: DistError) -> None:
        """Fail the whole group; the lock is held.

        What is pending ends a little later, when the communicator has found out what error all ranks raise.
        """
        if self.failure is None and not self._failing:
            self._failing = True
            self._unreported = error

    # ------------------------------------------------------------------ what the rest of the engine does

    def _write_pipes(self) -> None:
        """Send on what had to wait for room."""
        raise NotImplementedError

    def frame(self, connection: Connection | Pipe, header: Header) -> Incoming | None:
        """Take a frame."""
        raise NotImplementedError

    def lost(self, connection: Connection | Pipe, error: ProtocolError | None = None) -> None:
        """Hear that a connection has ended, or that what it brings makes no sense."""
        raise NotImplementedError

    def _peer_left(self, source: int) -> None:
        """Hear that a peer has destroyed the group."""
        raise NotImplementedError

    def _abort(self, error: DistError) -> None:
        """End everything that is pending with `error`, and tell the peers; the lock is held."""
        raise NotImplementedError
