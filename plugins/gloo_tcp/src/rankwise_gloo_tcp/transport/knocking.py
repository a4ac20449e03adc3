"""Connections that are being made: those that this rank dials, and the guests that have dialled it.

The engine's loop drives both, in small steps of fixed-size records, so nobody can keep it waiting.
"""

from __future__ import annotations

import os
import socket
import struct
from time import monotonic
from typing import Any, Protocol

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.machine.poller import READ, WRITE
from rankwise_gloo_tcp.protocol import handshake
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.protocol.guards import Guards

__all__ = ["MAX_GUESTS", "Dial", "Guest"]

#: How long a guest may take to prove who it is, in how many rounds of the loop at the least, as this process may have
#: stood still itself; and how many may be at it.
_PATIENCE_S, _ROUNDS = 5.0, 5
MAX_GUESTS = 128

_CREDENTIALS = struct.Struct("iII")


class Door(Protocol):
    """What dials and guests ask of whoever keeps them."""

    rank: int
    size: int
    key: bytes
    guarded: bool
    guards_payloads: bool

    def watch_fd(self, sock: socket.socket, mask: int, handler: Any) -> None:
        """Call `handler` when a socket is ready."""

    def unwatch(self, sock: socket.socket) -> None:
        """Stop calling."""

    def dial_failed(self, dial: Dial, why: str, code: int = 0) -> None:
        """Hear that a dial has failed; `code` is the system's number of the error, if it has one."""

    def dial_crossed(self, dial: Dial) -> None:
        """Hear that the other has dialled too, and that its connection is the one to use."""

    def admit(self, source: int) -> bool:
        """Tell whether a peer that has proved itself may connect."""

    def guest_left(self, guest: Guest, keep: bool = False) -> None:
        """Forget a guest; with `keep` its socket has become a connection."""

    def join(self, source: int, sock: socket.socket, guards: Guards | None) -> None:
        """Hand over a connection whose other end has proved itself."""


class _Joining:
    """A socket from which records of known size are being read."""

    def __init__(self, door: Door, sock: socket.socket) -> None:
        self.door, self.sock = door, sock
        self._got = bytearray()
        self.since = monotonic()

    def _record(self, nbytes: int) -> bytes | None:
        """Return the next record once it is whole.

        Raises:
            ProtocolError: The other has closed the connection.
        """
        try:
            piece = self.sock.recv(nbytes - len(self._got))
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise ProtocolError(f"the connection broke during the handshake: {error.strerror}") from error
        if not piece:
            raise ProtocolError("the connection was closed during the handshake")
        self._got += piece
        if len(self._got) < nbytes:
            return None
        record = bytes(self._got)
        self._got.clear()
        return record

    def _tell(self, record: bytes) -> None:
        # A few bytes into an empty buffer: they fit, or the connection is gone.
        try:
            if self.sock.send(record) != len(record):
                raise ProtocolError("the connection does not take a record of the handshake")
        except OSError as error:
            raise ProtocolError(f"the connection broke during the handshake: {error.strerror}") from error

    def close(self) -> None:
        """Give the socket back."""
        self.door.unwatch(self.sock)
        self.sock.close()


class Dial(_Joining):
    """A connection that this rank makes to `peer`."""

    def __init__(self, door: Door, peer: int, card: Card, near: bool) -> None:
        family = socket.AF_UNIX if near else socket.AF_INET6 if ":" in card.address else socket.AF_INET
        super().__init__(door, socket.socket(family, socket.SOCK_STREAM))
        self.sock.setblocking(False)
        self.peer, self.near = peer, near
        self._to = "\0" + card.unix if near else (card.address, card.port)
        self._hello: handshake.Hello | None = None
        self._answer: bytes | None = None
        self.begin()

    def begin(self) -> None:
        """Begin to connect; a Unix socket whose queue is full is tried again.

        Raises:
            OSError: Nobody listens there.
        """
        self.again = False
        try:
            self.sock.connect(self._to)
        except BlockingIOError:
            self.again = self.near
        if not self.again:
            self.door.watch_fd(self.sock, READ | WRITE, self._ready)

    def _ready(self, events: int) -> None:
        try:
            self._step()
        except ProtocolError as error:
            self.door.dial_failed(self, str(error))

    def _step(self) -> None:
        if self._hello is None:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self.door.dial_failed(self, os.strerror(code), code)
                return
            self.door.watch_fd(self.sock, READ, self._ready)
            self._hello = handshake.Hello.new(self.door.rank, self.peer, self.door.size)
            self._tell(self._hello.pack())
            return
        if self._answer is None:
            record = self._record(handshake.ANSWER_NBYTES)
            if record is None:
                return
            handshake.check_answer(self.door.key, self._hello, record)
            self._answer = record
            self._tell(handshake.proof(self.door.key, self._hello, record))
        verdict = self._record(1)
        if verdict is None:
            return
        if verdict != handshake.WELCOME:
            self.door.dial_crossed(self)
            return
        self.door.unwatch(self.sock)
        guards = None
        if self.door.guarded and not self.near:
            keys = handshake.session_keys(self.door.key, self._hello, self._answer)
            guards = Guards(*keys, self.door.guards_payloads)
        self.door.join(self.peer, self.sock, guards)


class Guest(_Joining):
    """A connection that somebody makes to this rank."""

    def __init__(self, door: Door, sock: socket.socket, near: bool) -> None:
        super().__init__(door, sock)
        self.near = near
        sock.setblocking(False)
        self._hello: handshake.Hello | None = None
        self._answer = b""
        self._rounds = 0
        door.watch_fd(sock, READ, self._ready)

    def is_too_slow(self, now: float) -> bool:
        """Tell, once a round of the loop, whether this guest has had its time to prove who it is."""
        self._rounds += 1
        return self._rounds > _ROUNDS and now - self.since > _PATIENCE_S

    def welcome_user(self) -> bool:
        """Tell whether the other end of a Unix socket is this same user."""
        if not self.near or not hasattr(socket, "SO_PEERCRED"):
            return True
        raw = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return bool(_CREDENTIALS.unpack(raw)[1] == os.geteuid())

    def _ready(self, events: int) -> None:
        try:
            self._step()
        except ProtocolError:
            # Whoever it was, this rank has nothing to do with it; a peer of ours will say what it saw.
            self.door.guest_left(self)

    def _step(self) -> None:
        key = self.door.key
        if self._hello is None:
            record = self._record(handshake.HELLO_NBYTES)
            if record is None:
                return
            self._hello = handshake.read_hello(record, self.door.rank, self.door.size)
            self._answer = handshake.answer(key, self._hello)
            self._tell(self._answer)
        record = self._record(handshake.PROOF_NBYTES)
        if record is None:
            return
        handshake.check_proof(key, self._hello, self._answer, record)
        if not self.door.admit(self._hello.source):
            self._tell(handshake.CROSSED)
            self.door.guest_left(self)
            return
        self._tell(handshake.WELCOME)
        self.door.guest_left(self, keep=True)
        guards = None
        if self.door.guarded and not self.near:
            theirs, mine = handshake.session_keys(key, self._hello, self._answer)
            guards = Guards(mine, theirs, self.door.guards_payloads)
        self.door.join(self._hello.source, self.sock, guards)
