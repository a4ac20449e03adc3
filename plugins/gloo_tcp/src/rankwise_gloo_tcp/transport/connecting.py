"""Connections that are being made, outgoing and incoming.

The engine's loop drives both, in small steps of fixed-size records, so nobody can keep it waiting. The rank that
listens says last, when nothing else is left to be done, whether the connection stands: so both ends agree on that.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, Protocol

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.machine.poller import READ, WRITE
from rankwise_gloo_tcp.protocol import handshake
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.protocol.guards import Guards
from rankwise_gloo_tcp.protocol.handshake import BrokenOffError
from rankwise_network import doors, interface

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.encrypted import EncryptedSocket, Encryption


class HandshakeOwner(Protocol):
    """What outgoing and incoming connections ask of the acceptor."""

    rank: int
    size: int
    connections: int
    key: bytes
    guarded: bool
    guards_payloads: bool
    encryption: Encryption | None

    def watch_fd(self, sock: socket.socket, mask: int, handler: Any) -> None:
        """Call `handler` when a socket is ready."""

    def unwatch(self, sock: socket.socket) -> None:
        """Stop calling."""

    def outgoing_failed(self, outgoing: Outgoing, why: str, code: int = 0, broken_off: bool = False) -> None:
        """Try again, or report it; `code` is the system's number of the error, if it has one."""

    def outgoing_crossed(self, outgoing: Outgoing) -> None:
        """Give up an attempt whose peer has connected too, and whose connection is the one to use."""

    def admit(self, source: int) -> bool:
        """Tell whether a peer that has proved itself may connect."""

    def incoming_ended(self, incoming: Incoming, keep: bool = False) -> None:
        """Forget an incoming connection; with `keep` its socket has become a connection."""

    def join(self, source: int, sock: socket.socket, guards: Guards | None) -> None:
        """Hand over a connection whose other end has proved itself."""


class _Joining:
    """A socket from which records of known size are being read; `near` if it is a Unix socket."""

    near: bool

    def __init__(self, owner: HandshakeOwner, sock: socket.socket) -> None:
        self.owner, self.sock = owner, sock
        self._got = bytearray()
        self._encrypted: EncryptedSocket | None = None
        self._patience = doors.Patience()

    def _record(self, nbytes: int) -> bytes | None:
        """Return the next record once it is whole.

        Raises:
            ProtocolError: The other has closed the connection.
        """
        piece = bytearray(nbytes - len(self._got))
        try:
            count = (self._encrypted or self.sock).recv_into(piece)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise BrokenOffError(f"the connection broke during the handshake: {error.strerror}") from error
        if not count:
            raise BrokenOffError("the connection was closed during the handshake")
        self._got += piece[:count]
        if len(self._got) < nbytes:
            return None
        record = bytes(self._got)
        self._got.clear()
        return record

    @property
    def _encrypts(self) -> bool:
        return not self.near and self.owner.encryption is not None

    def _encrypt(self, peer: int, dials: bool) -> bool:
        """Go on until the connection is encrypted, if it is to be; tell whether it is.

        Raises:
            ProtocolError: The other end does not prove itself.
        """
        if self.near or self.owner.encryption is None:
            return True
        if self._encrypted is None:
            self._encrypted = self.owner.encryption.begin(self.sock, peer, dials)
        return self._encrypted.shake()

    def _join(self, peer: int, mine: bytes, theirs: bytes) -> None:
        """Hand the connection over, with the keys that guard it if it is not encrypted."""
        guards = None
        if self._encrypted is not None:
            self.sock = self._encrypted  # type: ignore[assignment]  # with all that connections use
        elif self.owner.guarded and not self.near:
            guards = Guards(mine, theirs, self.owner.guards_payloads)
        self.owner.join(peer, self.sock, guards)

    def _tell(self, record: bytes) -> None:
        # A few bytes into an empty buffer: they fit, or the connection is gone.
        try:
            if (self._encrypted or self.sock).send(record) != len(record):
                raise BrokenOffError("the connection does not take a record of the handshake")
        except OSError as error:
            raise BrokenOffError(f"the connection broke during the handshake: {error.strerror}") from error

    def close(self) -> None:
        """Give the socket back."""
        self.owner.unwatch(self.sock)
        self.sock.close()


class Outgoing(_Joining):
    """A connection that this rank makes to `peer`; it listens itself at the address `here`."""

    def __init__(self, owner: HandshakeOwner, peer: int, card: Card, near: bool, here: str = "") -> None:
        self._to: Any = "\0" + card.unix if near else interface.place(card.address, card.port, here)
        family = socket.AF_UNIX if near else socket.AF_INET6 if ":" in card.address else socket.AF_INET
        super().__init__(owner, socket.socket(family, socket.SOCK_STREAM))
        self.sock.setblocking(False)
        self.peer, self.near = peer, near
        self._hello: handshake.Hello | None = None
        self._answer: bytes | None = None
        self._may_encrypt = False
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
            self.owner.watch_fd(self.sock, READ | WRITE, self._ready)

    @property
    def is_through(self) -> bool:
        """Whether the other end has taken the connection, and may have read a hello."""
        return self._hello is not None

    def is_unanswered(self, now: float, limit_s: float) -> bool:
        """Tell, once a round of the loop, whether the other host has not answered for so long."""
        return not self.near and self._hello is None and self._patience.has_had(limit_s, now)

    def local_address(self) -> str | None:
        """Return the address of this host from which the connection is made, if there is one so far."""
        try:
            address = interface.address_of(self.sock.getsockname())
        except OSError:
            return None
        return address if address not in ("", "0.0.0.0", "::") else None

    def _ready(self, events: int) -> None:
        try:
            self._step()
        except ProtocolError as error:
            self.owner.outgoing_failed(self, str(error), broken_off=isinstance(error, BrokenOffError))

    def _step(self) -> None:
        if self._hello is None:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self.owner.outgoing_failed(self, os.strerror(code), code)
                return
            self.owner.watch_fd(self.sock, READ, self._ready)
            self._hello = handshake.Hello.of(self.owner.rank, self.peer, self.owner.size, self.owner.connections)
            self._tell(self._hello.pack())
            return
        if self._answer is None:
            record = self._record(handshake.ANSWER_NBYTES)
            if record is None:
                return
            handshake.check_answer(self.owner.key, self._hello, record)
            self._answer = record
            self._tell(handshake.proof(self.owner.key, self._hello, record))
        if self._encrypts and not self._may_encrypt:
            self._may_encrypt = self._is_welcome()
            if not self._may_encrypt:
                return
        if self._encrypt(self.peer, dials=True) and self._is_welcome():
            self.owner.unwatch(self.sock)
            self._join(self.peer, *handshake.session_keys(self.owner.key, self._hello, self._answer))

    def _is_welcome(self) -> bool:
        """Read a verdict, if it has come; tell whether that lets this rank go on."""
        verdict = self._record(1)
        if verdict is not None and verdict != handshake.WELCOME:
            self.owner.outgoing_crossed(self)
        return verdict == handshake.WELCOME


class Incoming(_Joining):
    """A connection that somebody makes to this rank."""

    def __init__(self, owner: HandshakeOwner, sock: socket.socket, near: bool) -> None:
        super().__init__(owner, sock)
        self.near = near
        sock.setblocking(False)
        self._hello: handshake.Hello | None = None
        self._answer = b""
        self._proven = False
        owner.watch_fd(sock, READ, self._ready)

    def has_timed_out(self, now: float) -> bool:
        """Tell, once a round of the loop, whether the handshake has had its time."""
        return self._patience.has_had(doors.PATIENCE_S, now)

    def check_uid(self) -> bool:
        """Tell whether the other end of a Unix socket belongs to this same user."""
        return not self.near or doors.is_own_user(self.sock)

    def _ready(self, events: int) -> None:
        try:
            self._step()
        except ProtocolError:
            # A stranger is no failure of the group; a peer of ours will say what it saw.
            self.owner.incoming_ended(self)

    def _step(self) -> None:
        key = self.owner.key
        if self._hello is None:
            record = self._record(handshake.HELLO_NBYTES)
            if record is None:
                return
            self._hello = handshake.read_hello(record, self.owner.rank, self.owner.size, self.owner.connections)
            self._answer = handshake.answer(key, self._hello)
            self._tell(self._answer)
        if not self._proven:
            record = self._record(handshake.PROOF_NBYTES)
            if record is None:
                return
            handshake.check_proof(key, self._hello, self._answer, record)
            self._proven = True
            if self._encrypts and not self._welcome(self._hello.source):
                return
        if self._encrypt(self._hello.source, dials=False) and self._welcome(self._hello.source):
            self.owner.incoming_ended(self, keep=True)
            theirs, mine = handshake.session_keys(key, self._hello, self._answer)
            self._join(self._hello.source, mine, theirs)

    def _welcome(self, source: int) -> bool:
        """Give a verdict; tell whether the other may go on."""
        is_welcome = self.owner.admit(source)
        self._tell(handshake.WELCOME if is_welcome else handshake.CROSSED)
        if not is_welcome:
            self.owner.incoming_ended(self)
        return is_welcome
