"""A TCP socket whose bytes are encrypted: TLS 1.3 by OpenSSL, on sockets that never block.

Compiled code has OpenSSL read and write the socket; the standard library's does so through memory, so that the loop
waits for nothing but the socket. Ranks that do the one and the other talk to each other.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.protocol.handshake import BrokenOffError
from rankwise_gloo_tcp.transport import openssl

_GONE = "the connection was closed during the handshake"
#: How much the standard library's encrypts, and takes from the socket, at a time.
_PIECE_NBYTES = 256 << 10


class AnyContext(Protocol):
    """What takes keys and certificates: of the standard library, or of what compiled code uses."""

    def load_cert_chain(self, certfile: str, keyfile: str | None = None, /) -> None:
        """Use a certificate and its key."""

    def load_verify_locations(
        self, cafile: str | None = None, capath: str | None = None, cadata: str | None = None
    ) -> None:
        """Believe those whom one of these certificates has signed."""


class Encryption:
    """How this rank proves itself to others, and by what it knows them.

    Args:
        prove: Has a context use this rank's key and certificate.
        know: Has a context trust the certificate of one rank, and no other where certificates are pinned.

    Attributes:
        compiled: Whether compiled code may use the connections.
    """

    def __init__(self, prove: Callable[[AnyContext], object], know: Callable[[AnyContext, int], object]) -> None:
        self._prove, self._know, self.compiled = prove, know, openssl.is_usable()

    def begin(self, sock: socket.socket, peer: int, dials: bool) -> EncryptedSocket:
        """Begin to encrypt a connection to a rank; `dials` on the side that has connected.

        Raises:
            ProtocolError: A certificate makes no sense.
        """
        context = openssl.Context(dials) if self.compiled else _standard_context(dials)
        try:
            self._prove(context)
            self._know(context, peer)
        except (OSError, ValueError) as error:
            raise ProtocolError(f"the connection cannot be encrypted: {error}") from error
        if isinstance(context, openssl.Context):
            return CompiledSocket(sock, context)
        return StandardSocket(sock, context, dials)


def _standard_context(dials: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if dials else ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is known, or signed by who signs for this job alone
    context.verify_mode = ssl.CERT_REQUIRED
    if not dials:
        context.num_tickets = 0  # nothing is resumed
    return context


class EncryptedSocket:
    """What a connection uses of a socket. Bytes count as sent once the system has taken all that they became."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.family = sock, sock.family
        self.fileno, self.close = sock.fileno, sock.close
        self.getsockname, self.getpeername, self.getsockopt = sock.getsockname, sock.getpeername, sock.getsockopt

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option; it is never woken late, as part of what is awaited may have been read already."""
        if option != socket.SO_RCVLOWAT:
            self._sock.setsockopt(level, option, value)

    def shake(self) -> bool:
        """Go on with the handshake; tell whether it is done.

        Raises:
            ProtocolError: The other end does not prove itself, or has gone.
        """
        raise NotImplementedError

    def send(self, data: bytes | memoryview) -> int:
        """Send some of these bytes, and return how many.

        Raises:
            BlockingIOError: The system takes none for now. The same bytes, or as many others, must come next time.
        """
        return self.sendmsg((data,))

    def sendmsg(self, parts: Sequence[bytes | memoryview]) -> int:
        """Do the same with bytes that lie in several places."""
        raise NotImplementedError

    def holds(self) -> object:
        """Tell whether something has been taken from the socket that nobody has read."""
        raise NotImplementedError

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0) -> int:
        """Read bytes, as many as have come and fit.

        Raises:
            BlockingIOError: None have.
            ProtocolError: They were changed on their way.
        """
        view = memoryview(buffer)
        return self.recvmsg_into((view[:nbytes] if nbytes else view,))[0]

    def recvmsg_into(self, buffers: Sequence[memoryview]) -> tuple[int]:
        """Do the same into several places."""
        raise NotImplementedError


class CompiledSocket(EncryptedSocket):
    """A socket that compiled code has OpenSSL read and write; a compiled wire uses its `tls` by itself."""

    def __init__(self, sock: socket.socket, context: openssl.Context) -> None:
        super().__init__(sock)
        self.tls = context.wrap(sock)

    def shake(self) -> bool:
        """Go on with the handshake."""
        try:
            return self.tls.shake()
        except ConnectionError as error:
            raise BrokenOffError(_GONE) from error
        except ValueError as error:
            raise ProtocolError(f"the connection cannot be encrypted: {error}") from error

    def sendmsg(self, parts: Sequence[bytes | memoryview]) -> int:
        """Send bytes that lie in several places."""
        return self.tls.send(parts)

    def holds(self) -> object:
        """Tell whether something has been taken from the socket that nobody has read."""
        return self.tls.holds()

    def recvmsg_into(self, buffers: Sequence[memoryview]) -> tuple[int]:
        """Read bytes, as many as have come and fit."""
        try:
            return (self.tls.receive(buffers),)
        except ValueError as error:
            raise ProtocolError(f"a frame was changed on its way ({error})") from error


class StandardSocket(EncryptedSocket):
    """A socket that the standard library encrypts, through memory."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, dials: bool) -> None:
        super().__init__(sock)
        self._come, self._go = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._come, self._go, server_side=not dials)
        self._piece = bytearray(_PIECE_NBYTES)
        #: What is left of what was encrypted last, and how many bytes that stands for.
        self._left = memoryview(b"")
        self._stands_for = 0

    def shake(self) -> bool:
        """Go on with the handshake."""
        while True:
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                is_done = False
            except ssl.SSLEOFError as error:
                raise BrokenOffError(_GONE) from error
            except ssl.SSLError as error:
                self._tell()  # the other end is to know why
                raise ProtocolError(f"the connection cannot be encrypted: {error.reason or error}") from error
            self._tell()
            if is_done or not self._fill():
                return is_done

    def _tell(self) -> None:
        data = self._go.read()
        try:
            if data and self._sock.send(data) != len(data):
                raise BrokenOffError("the connection does not take a record of the handshake")
        except OSError as error:
            raise BrokenOffError(f"the connection broke during the handshake: {error.strerror}") from error

    # ------------------------------------------------------------------ out

    def send(self, data: bytes | memoryview) -> int:
        """Send some of these bytes, in one piece."""
        if self._stands_for or len(data) > _PIECE_NBYTES or not len(data):
            return self.sendmsg([data])
        self._stands_for = self._tls.write(data)
        self._left = memoryview(self._go.read())
        return self.sendmsg(())

    def sendmsg(self, parts: Sequence[bytes | memoryview]) -> int:
        """Send bytes that lie in several places."""
        if not self._stands_for:
            self._encrypt(parts)
        while self._left:
            self._left = self._left[self._sock.send(self._left) :]
        count, self._stands_for = self._stands_for, 0
        return count

    def _encrypt(self, parts: Sequence[bytes | memoryview]) -> None:
        room = _PIECE_NBYTES
        for part in parts:
            piece = memoryview(part)[:room]
            if len(piece):
                room -= self._tls.write(piece)
        self._stands_for = _PIECE_NBYTES - room
        self._left = memoryview(self._go.read())

    # ------------------------------------------------------------------ in

    def holds(self) -> int:
        """Tell whether something has been taken from the socket that nobody has read."""
        return self._tls.pending() or self._come.pending

    def recvmsg_into(self, buffers: Sequence[memoryview]) -> tuple[int]:
        """Read bytes, as many as have come and fit."""
        return (self._read(buffers),)

    def _read(self, buffers: Sequence[memoryview]) -> int:
        total = 0
        for view in buffers:
            while len(view):
                count = self._some(view)
                if count is None and not total:
                    raise BlockingIOError
                if not count:
                    return total
                view, total = view[count:], total + count
        return total

    def _some(self, view: memoryview) -> int | None:
        """Read what fits of one record; 0 at the end, None if there is nothing."""
        while True:
            # To ask OpenSSL in vain costs as much as all the rest.
            if not self.holds() and not self._fill():
                return None
            try:
                count: Any = self._tls.read(len(view), view)
                return int(count)
            except ssl.SSLWantReadError:
                if not self._fill():
                    return None
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return 0
            except ssl.SSLError as error:
                raise ProtocolError(f"a frame was changed on its way ({error.reason or error})") from error

    def _fill(self) -> bool:
        """Take in what the socket has; false if that is nothing."""
        try:
            count = self._sock.recv_into(self._piece)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            count = 0
        if count:
            self._come.write(memoryview(self._piece)[:count])
        else:
            self._come.write_eof()
        return True
