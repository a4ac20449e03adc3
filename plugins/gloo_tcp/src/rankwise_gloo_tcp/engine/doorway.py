"""New connections: those that this rank dials, and those of guests that have dialled it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Protocol

from rankwise.errors import DistError, DistNetworkError
from rankwise_gloo_tcp.engine.loop import Handler, Loop
from rankwise_gloo_tcp.engine.peer import GONE, Peer, death
from rankwise_gloo_tcp.engine.setting import Setting
from rankwise_gloo_tcp.machine.poller import READ
from rankwise_gloo_tcp.protocol.guards import Guards
from rankwise_gloo_tcp.transport.knocking import MAX_GUESTS, Dial, Guest

__all__ = ["RETRY_S", "Doorway", "Hall"]

RETRY_S = 0.005
#: How long the door stays shut after the process has run out of descriptors: trying at once would keep it busy.
_SHUT_S = 0.1
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM)


class Hall(Protocol):
    """Whoever uses the connections."""

    def joined(self, peer: Peer, sock: socket.socket, guards: Guards | None) -> None:
        """Begin to use a connection whose other end has proved itself."""

    def unreachable(self, peer: Peer, error: DistError) -> None:
        """Hear that no connection to a peer can be made."""


class Doorway:
    """The listening sockets of one engine, its guests and its dials. All methods are called with the lock held."""

    def __init__(self, setting: Setting, loop: Loop, peers: list[Peer], hall: Hall) -> None:
        self.rank, self.size, self.key = setting.rank, len(setting.names), setting.key
        self.guarded, self.guards_payloads = setting.guarded, setting.guards_payloads
        self.listeners: list[socket.socket] = []
        self.guests: dict[Guest, None] = {}
        #: Whether a Unix socket's queue was full and is to be tried again.
        self.retrying = False
        self._names, self._loop, self._peers, self._hall = setting.names, loop, peers, hall
        self._shut_until = 0.0

    @property
    def busy(self) -> bool:
        """Whether something is to be looked after from time to time."""
        return self.retrying or bool(self.guests) or self._shut_until > 0

    def listen(self, sock: socket.socket, near: bool) -> None:
        """Take in guests from a listening socket, which the doorway closes in the end."""
        sock.setblocking(False)
        self.listeners.append(sock)
        self._open(sock, near)

    def connect(self, peer: Peer) -> None:
        """Begin to connect to a peer, unless that is under way."""
        if peer.dial is None and peer.connection is None:
            self._try(peer, lambda: self._dial(peer))
            self._loop.hurry()

    def tick(self) -> None:
        """Do what is to be done from time to time."""
        now = monotonic()
        for guest in [guest for guest in self.guests if guest.is_too_slow(now)]:
            self.guest_left(guest)
        if self._shut_until and now >= self._shut_until:
            self._shut_until = 0.0
            for listener in self.listeners:
                self._open(listener, listener.family == socket.AF_UNIX)
        if self.retrying:
            self.retrying = False
            for peer in self._peers:
                if peer.dial is not None and peer.dial.again:
                    self._try(peer, peer.dial.begin)

    def close(self) -> None:
        """Give all sockets back that are no connections yet."""
        for guest in list(self.guests):
            self.guest_left(guest)
        for peer in self._peers:
            self._drop_dial(peer)
        for listener in self.listeners:
            self._loop.watch(listener, 0, None)
            listener.close()

    # ------------------------------------------------------------------ what dials and guests ask

    def watch_fd(self, sock: socket.socket, mask: int, handler: Handler) -> None:
        """Call `handler` when a socket is ready."""
        self._loop.add(sock.fileno(), mask, handler)

    def unwatch(self, sock: socket.socket) -> None:
        """Stop calling."""
        self._loop.watch(sock, 0, None)

    def guest_left(self, guest: Guest, keep: bool = False) -> None:
        """Forget a guest; with `keep` its socket has become a connection."""
        self.guests.pop(guest, None)
        if keep:
            self.unwatch(guest.sock)
        else:
            guest.close()

    def admit(self, source: int) -> bool:
        """Tell whether a peer that has proved itself may connect: not if this rank's own attempt takes precedence."""
        peer = self._peers[source]
        if peer.connection is not None:
            return False
        return peer.dial is None or self.rank > source

    def join(self, source: int, sock: socket.socket, guards: Guards | None) -> None:
        """Hand over a connection whose other end has proved itself."""
        peer = self._peers[source]
        if peer.dial is not None and peer.dial.sock is not sock:
            self._drop_dial(peer)
        peer.dial = None
        peer.failures = 0
        self._hall.joined(peer, sock, guards)

    def dial_crossed(self, dial: Dial) -> None:
        """The other has dialled too, and its connection will come."""
        self._drop_dial(self._peers[dial.peer])

    def dial_failed(self, dial: Dial, why: str, code: int = 0) -> None:
        """Try again where that may help: the other may have had no time for the handshake."""
        peer = self._peers[dial.peer]
        self._drop_dial(peer)
        peer.failures += 1
        if "handshake" in why and peer.failures < 4:
            self.connect(peer)
        elif "prove" in why or "handshake" in why or code in _UNREACHABLE:
            self._hall.unreachable(peer, DistNetworkError(f"cannot connect to {self._where(peer)}: {why}"))
        else:
            self._hall.unreachable(peer, death(peer, self._names[peer.rank], GONE))

    # ------------------------------------------------------------------ dialling

    def _dial(self, peer: Peer) -> None:
        name = self._names[peer.rank]
        if not peer.near and not peer.card.address:
            raise DistNetworkError(f"rank {name} on {peer.card.host} serves no network, as there is no job secret")
        peer.dial = Dial(self, peer.rank, peer.card, peer.near)
        self.retrying = self.retrying or peer.dial.again

    def _try(self, peer: Peer, step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as error:
            self._drop_dial(peer)
            self._hall.unreachable(peer, self._explain(peer, error))
        except DistError as error:
            self._hall.unreachable(peer, error)
        if peer.dial is not None and peer.dial.again:
            self.retrying = True

    def _explain(self, peer: Peer, error: OSError) -> DistError:
        if error.errno in _UNREACHABLE or error.errno in _NO_DESCRIPTORS:
            return DistNetworkError(f"cannot connect to {self._where(peer)}: {error.strerror}")
        return death(peer, self._names[peer.rank], GONE)

    def _where(self, peer: Peer) -> str:
        place = f"rank {self._names[peer.rank]} on {peer.card.host}"
        if peer.near:
            return place
        return f"{place} at {peer.card.address} (RANKWISE_SOCKET_IFNAME on that rank chooses another)"

    def _drop_dial(self, peer: Peer) -> None:
        dial, peer.dial = peer.dial, None
        if dial is not None:
            dial.close()

    # ------------------------------------------------------------------ guests

    def _open(self, listener: socket.socket, near: bool) -> None:
        self._loop.watch(listener, READ, partial(self._accept, listener, near))

    def _accept(self, listener: socket.socket, near: bool, event: int) -> None:
        for _ in range(16):
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    self._shut()
                return  # else it went away before it was taken in
            while len(self.guests) >= MAX_GUESTS:
                self.guest_left(next(iter(self.guests)))  # who has been at it for longest
            guest = Guest(self, sock, near)
            self.guests[guest] = None
            if not guest.welcome_user():
                self.guest_left(guest)

    def _shut(self) -> None:
        self._shut_until = monotonic() + _SHUT_S
        for listener in self.listeners:
            self._loop.watch(listener, 0, None)
