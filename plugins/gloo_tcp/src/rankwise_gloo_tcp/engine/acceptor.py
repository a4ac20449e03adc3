"""New connections: those that this rank begins, and those that its peers do."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from rankwise.errors import DistError, DistNetworkError
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.loop import Handler, Loop
from rankwise_gloo_tcp.engine.peer import Peer, advice, broken, since
from rankwise_gloo_tcp.machine.poller import READ
from rankwise_network import doors, interface, outage

if TYPE_CHECKING:
    from rankwise_gloo_tcp.protocol.guards import Guards
    from rankwise_gloo_tcp.transport.connecting import Incoming, Outgoing

RETRY_S = 0.005
#: For how long nothing is accepted after the process has run out of descriptors: trying again would keep it busy.
_PAUSE_S = 0.1
#: For how long a port that refuses is tried again, and how often: the peer may be let through in the other direction.
_REFUSED_S, _AGAIN_S = 0.5, 0.1
#: What the system says while the network is out of order.
_NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.ETIMEDOUT)


class PeerRegistry(Protocol):
    """What uses the connections."""

    def joined(self, peer: Peer, sock: socket.socket, guards: Guards | None) -> None:
        """Begin to use a connection whose other end has proved itself."""

    def unreachable(self, peer: Peer, error: DistError) -> None:
        """Fail what needs a peer to which no connection has come about."""


class Acceptor:
    """The listening sockets of one engine, and connections whose ends have not proved themselves yet.

    All methods are called with the engine's lock held.
    """

    __slots__ = (
        *("_loop", "_names", "_paused_until", "_peers", "_registry", "_silent_s", "connections"),
        *("encryption", "guarded", "guards_payloads", "incoming", "key", "listeners", "rank", "size", "wanted"),
    )

    def __init__(self, config: EngineConfig, loop: Loop, peers: list[Peer], registry: PeerRegistry) -> None:
        self.rank, self.size, self.key = config.rank, config.size, config.key
        self.connections = config.connections
        self.guarded, self.guards_payloads = config.guarded, config.guards_payloads
        self.encryption = config.encryption
        self.listeners: list[socket.socket] = []
        self.incoming: dict[Incoming, None] = {}
        #: The peers to whom no connection has come about so far, though one is wanted.
        self.wanted: dict[Peer, None] = {}
        #: After how long without an answer a connection counts as failed. A group that waits for less than twice as
        #: long gives up in half its time.
        self._silent_s = min(outage.limit_s(), config.timeout_s / 2)
        self._names, self._loop, self._peers, self._registry = config.names, loop, peers, registry
        self._paused_until = 0.0

    @property
    def busy(self) -> bool:
        """Whether something is to be looked after from time to time."""
        return bool(self.wanted or self.incoming) or self._paused_until > 0

    @property
    def retrying(self) -> bool:
        """Whether the queue of a Unix socket was full, which tells nobody when it has room."""
        return any(peer.outgoing is not None and peer.outgoing.again for peer in self.wanted)

    def listen(self, sock: socket.socket, near: bool) -> None:
        """Take in incoming connections from a listening socket, which the acceptor closes in the end."""
        sock.setblocking(False)
        self.listeners.append(sock)
        self._open(sock, near)

    def connect(self, peer: Peer) -> None:
        """Begin to connect to a peer, unless that is under way."""
        if peer.outgoing is None and peer.connection is None and peer not in self.wanted:
            self._try(peer, lambda: self._begin(peer))
            self._loop.hurry()

    def tick(self) -> None:
        """Do what is to be done from time to time."""
        now = monotonic()
        for incoming in [each for each in self.incoming if each.has_timed_out(now)]:
            self.incoming_ended(incoming)
        if self._paused_until and now >= self._paused_until:
            self._paused_until = 0.0
            for listener in self.listeners:
                self._open(listener, listener.family == socket.AF_UNIX)
        for peer in list(self.wanted):
            if peer.outgoing is not None and peer.outgoing.again:
                self._try(peer, peer.outgoing.begin)
            elif peer.outgoing is not None and peer.outgoing.is_unanswered(now, self._silent_s):
                self._give_up(peer, "no answer", is_silent=True)
            elif peer.outgoing is None and now - peer.tried_at > _AGAIN_S:
                self._try(peer, lambda peer=peer: self._begin(peer))  # type: ignore[misc]

    def close(self) -> None:
        """Give all sockets back that are no connections yet."""
        for incoming in list(self.incoming):
            self.incoming_ended(incoming)
        for peer in self._peers:
            self._drop_outgoing(peer)
        self.stop_listening()

    def stop_listening(self) -> None:
        """Give the listening sockets back: nobody is to come any more."""
        while self.listeners:
            listener = self.listeners.pop()
            self._loop.watch(listener, 0, None)
            listener.close()

    # ------------------------------------------------------------------ what new connections ask

    def watch_fd(self, sock: socket.socket, mask: int, handler: Handler) -> None:
        """Call `handler` when a socket is ready."""
        self._loop.add(sock.fileno(), mask, handler)

    def unwatch(self, sock: socket.socket) -> None:
        """Stop calling."""
        self._loop.watch(sock, 0, None)

    def incoming_ended(self, incoming: Incoming, keep: bool = False) -> None:
        """Forget an incoming connection; with `keep` its socket has become a connection."""
        self.incoming.pop(incoming, None)
        if keep:
            self.unwatch(incoming.sock)
        else:
            incoming.close()

    def admit(self, source: int) -> bool:
        """Tell whether a peer that has proved itself may connect: not if this rank's own attempt takes precedence."""
        peer = self._peers[source]
        if peer.connection is not None:
            return False
        return peer.outgoing is None or self.rank > source % self.size or not peer.outgoing.is_through

    def join(self, source: int, sock: socket.socket, guards: Guards | None) -> None:
        """Hand over a connection whose other end has proved itself."""
        peer = self._peers[source]
        if peer.outgoing is not None and peer.outgoing.sock is not sock:
            self._drop_outgoing(peer)
        peer.outgoing = None
        peer.failures, peer.wanted_at = 0, 0.0
        self.wanted.pop(peer, None)
        self._registry.joined(peer, sock, guards)

    def outgoing_crossed(self, outgoing: Outgoing) -> None:
        """The other has connected too, and its connection will come."""
        peer = self._peers[outgoing.peer]
        self._drop_outgoing(peer)
        self.wanted.pop(peer, None)

    def outgoing_failed(self, outgoing: Outgoing, why: str, code: int = 0, broken_off: bool = False) -> None:
        """Try again where that may help: the other may have had no time for the handshake."""
        peer = self._peers[outgoing.peer]
        peer.failures += 1
        if broken_off and peer.failures < 4:
            self._drop_outgoing(peer)
            self._try(peer, lambda: self._begin(peer))
        else:
            self._failed(peer, why, code)

    def _failed(self, peer: Peer, why: str, code: int) -> None:
        again_s = self._silent_s if code in _NO_WAY else _REFUSED_S if code == errno.ECONNREFUSED else 0.0
        if not peer.near and monotonic() - peer.wanted_at < again_s:
            self._drop_outgoing(peer)
        else:
            self._give_up(peer, why, is_silent=code in _NO_WAY)

    # ------------------------------------------------------------------ outgoing connections

    def _begin(self, peer: Peer) -> None:
        from rankwise_gloo_tcp.transport.connecting import Outgoing  # as in `_accept`

        name = self._names[peer.rank]
        if not peer.near and not peer.card.address:
            raise DistNetworkError(f"rank {name} on {peer.card.host} serves no network, as there is no job secret")
        self.wanted[peer] = None
        peer.tried_at = monotonic()
        peer.wanted_at = peer.wanted_at or peer.tried_at
        peer.outgoing = Outgoing(self, peer.rank, peer.card, peer.near, self._peers[self.rank].card.address)

    def _try(self, peer: Peer, step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as error:
            self._failed(peer, error.strerror or str(error), error.errno or 0)
        except DistError as error:
            self._registry.unreachable(peer, error)

    def _give_up(self, peer: Peer, why: str, is_silent: bool = False) -> None:
        """Report that no connection to a peer has come about."""
        text = f"cannot connect {self._between(peer)}: {why} {self._since(peer)}"
        error = broken(self._names[peer.rank], text, is_silent)
        self._drop_outgoing(peer)
        self.wanted.pop(peer, None)
        peer.wanted_at = 0.0
        self._registry.unreachable(peer, error)

    def trouble(self, peer: Peer) -> str:
        """Say that a connection to a peer has not come about so far; nothing if that is not so."""
        if peer not in self.wanted:
            return ""
        return f"no connection has come about {self._between(peer)} {self._since(peer)}"

    def _between(self, peer: Peer) -> str:
        """Say which two ends a connection has, which is where to look for what is in its way."""
        me, card = self._peers[self.rank].card, peer.card
        there = f"rank {self._names[peer.rank]} on {card.host}"
        if peer.near:
            return f"to {there} through its Unix socket"
        here = (None if peer.outgoing is None else peer.outgoing.local_address()) or me.address
        name = interface.interface_of(here) or "unknown"
        return (
            f"from rank {self._names[self.rank]} on {me.host} (address {here}, interface {name}) "
            f"to {there} (address {card.address}, port {card.port})"
        )

    def _since(self, peer: Peer) -> str:
        age_s = monotonic() - (peer.wanted_at or monotonic())
        return since(age_s) if peer.near else f"{since(age_s)}; {advice(peer)}"

    def _drop_outgoing(self, peer: Peer) -> None:
        outgoing, peer.outgoing = peer.outgoing, None
        if outgoing is not None:
            outgoing.close()

    # ------------------------------------------------------------------ incoming connections

    def _open(self, listener: socket.socket, near: bool) -> None:
        self._loop.watch(listener, READ, partial(self._accept, listener, near))

    def _accept(self, listener: socket.socket, near: bool, event: int) -> None:
        for _ in range(16):
            try:
                # Ranks that share memory never load it; there may be no descriptor for that.
                from rankwise_gloo_tcp.transport.connecting import Incoming

                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in doors.NO_DESCRIPTORS:
                    self._pause()
                return  # else it went away before it was taken in
            while len(self.incoming) >= doors.PLACES:
                self.incoming_ended(next(iter(self.incoming)))  # the oldest
            incoming = Incoming(self, sock, near)
            self.incoming[incoming] = None
            if not incoming.check_uid():
                self.incoming_ended(incoming)

    def _pause(self) -> None:
        self._paused_until = monotonic() + _PAUSE_S
        for listener in self.listeners:
            self._loop.watch(listener, 0, None)
