"""One established connection over a socket: it moves the bytes of frames that `protocol` reads and writes."""

from __future__ import annotations

import fcntl
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.machine.poller import READ, WRITE
from rankwise_gloo_tcp.protocol.frames import Header
from rankwise_gloo_tcp.protocol.guards import Guards
from rankwise_gloo_tcp.protocol.parcel import Incoming, Parcel
from rankwise_gloo_tcp.protocol.reader import Reader
from rankwise_gloo_tcp.protocol.writer import Writer

__all__ = ["Connection", "Descriptors", "Office"]

#: While more than the first is still to come, it is taken in pieces of up to the second, as each wake-up costs. Linux
#: alone promises room for them.
_LOTS_NBYTES, _PIECE_NBYTES = 64 << 10, 512 << 10
_MAY_DOZE = sys.platform == "linux"
#: How many pieces go out before the other direction has its turn.
_SENDS_A_TURN = 8


class Descriptors(Protocol):
    """What a connection asks of the loop."""

    moved_nbytes: int
    looking: bool

    def watch(self, sock: socket.socket, mask: int, handler: Any) -> None:
        """Call `handler` when a socket is ready; for a mask of 0 no more."""


class Office(Protocol):
    """What a connection tells whoever takes its frames; all of it while the engine's lock is held."""

    def frame(self, connection: Any, header: Header) -> Incoming:
        """Take a frame."""

    def lost(self, connection: Any) -> None:
        """Hear that the connection has ended."""

    def garbled(self, connection: Any, error: ProtocolError) -> None:
        """Hear that what a connection brings makes no sense; nothing more is read from it."""

    def held_up(self) -> None:
        """Hear that something waits for room, and is to be sent whether or not anybody waits for it."""


class Connection:
    """One end of a connection to a peer. All methods are called with the engine's lock held."""

    def __init__(
        self, office: Office, loop: Descriptors, peer: int, sock: socket.socket, guards: Guards | None
    ) -> None:
        self.office, self.loop, self.peer, self.sock = office, loop, peer, sock
        self.closed = self.left = False
        #: How much has come.
        self.came_nbytes = 0
        self.guarded = guards is not None
        self._broken = self._writing = self._deaf = False
        self._writer = Writer(guards)
        self._reader = Reader(partial(office.frame, self), guards)
        #: How much must have come before this end is woken.
        self._least = 1
        self._watch(writing=False)

    # ------------------------------------------------------------------ out

    def send(
        self, header: Header, payload: memoryview | None = None, request: Parcel | None = None, prefix: bytes = b""
    ) -> None:
        """Send a frame behind those that are waiting; end `request` when its last byte has left.

        The prefix goes before the payload, as part of it.
        """
        self._writer.put(header, payload, request, prefix)
        if not self._writing and not self._broken:  # if it is, whoever reads will find out why
            self.flush()

    def post(self, head: bytes, data: bytes) -> bool:
        """Send a small message at once; false if it cannot be: others are before it, or the connection has ended.

        Where the socket has not taken all of it, this end is not `idle`, and `end_with_rest` tells when it has.
        """
        if self._broken or self.closed or not self._writer.idle:
            return False
        frame = self._writer.whole(head, data)
        try:
            sent = self.sock.send(frame)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._break()
            return False
        self.loop.moved_nbytes += sent
        self._writer.sent(sent)
        if sent < len(frame):
            self._watch(writing=True)
        return True

    def end_with_rest(self, request: Parcel) -> None:
        """End a request when what is leaving has left."""
        self._writer.end_with_rest(request)

    @property
    def idle(self) -> bool:
        """Whether everything has left."""
        return self._broken or self.closed or self._writer.idle

    @property
    def unconfirmed(self) -> bool:
        """Whether the peer's machine has yet to confirm some of what has left, as far as this system tells."""
        if self._broken or self.closed or self.sock.family == socket.AF_UNIX:
            return False
        import termios  # only now: connections that leave this machine have use for it

        nbytes = bytearray(4)
        with suppress(OSError):
            fcntl.ioctl(self.sock, termios.TIOCOUTQ, nbytes)
        return any(nbytes)

    def flush(self) -> None:
        """Send until the socket is full."""
        writer = self._writer
        for _ in range(_SENDS_A_TURN):
            if not writer.next():
                self._watch(writing=False)
                return
            try:
                sent = self.sock.sendmsg(writer.parts)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self._break()
                return
            self.loop.moved_nbytes += sent
            writer.sent(sent)
        self._watch(writing=not writer.idle)

    def _break(self) -> None:
        """Send nothing any more. What the peer said before it went may still be there to read."""
        self._broken = True
        self._watch(writing=False)

    def push(self) -> None:
        """Go on with what waits until the socket has room, without being told that it has."""
        if self._writing and not self.closed:
            self.flush()

    # ------------------------------------------------------------------ in

    def receive(self) -> None:
        """Take in what has come."""
        while not (self.closed or self._deaf):
            room = self._reader.room()
            try:
                count = self.sock.recvmsg_into(room)[0] if len(room) > 1 else self.sock.recv_into(room[0])
            except (BlockingIOError, InterruptedError):
                self._doze()
                return
            except OSError:
                count = 0
            if count == 0:
                self.office.lost(self)
                return
            self.loop.moved_nbytes += count
            self.came_nbytes += count
            is_all = count < sum(map(len, room))
            try:
                self._reader.received(count)
            except ProtocolError as error:
                self._garbled(error)
                return
            if is_all:
                self._doze()
                return

    def take(self, head: bytes, room: memoryview) -> bool | None:
        """Receive the next frame if it is this small message.

        Args:
            head: Its header.
            room: Where its payload goes, which fills it.

        Returns:
            True if it was, and None if nothing has come. False if something else has, and was taken in, or if this is
            no time for it: then the message comes, or has come, the usual way.
        """
        reader = self._reader
        nbytes = reader.expect(len(room))
        if self.closed or self._deaf or not nbytes:
            return False
        try:
            count = self.sock.recv_into(reader.inbox, nbytes)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            count = 0
        if count == 0:
            self.office.lost(self)
            return False
        self.loop.moved_nbytes += count
        self.came_nbytes += count
        try:
            return reader.expected(count, head, room)
        except ProtocolError as error:
            self._garbled(error)
            return False

    def _garbled(self, error: ProtocolError) -> None:
        # The peer is to hear why before the connection ends.
        self._deaf = True
        self._watch(writing=self._writing)
        self.office.garbled(self, error)

    def _doze(self) -> None:
        """Sleep on until so much has come as is worth to be woken for; who looks takes what there is."""
        rest = self._reader.missing_nbytes
        least = min(rest, _PIECE_NBYTES) if rest >= _LOTS_NBYTES and _MAY_DOZE and not self.loop.looking else 1
        if least != self._least and not self.closed:
            self._least = least
            if self.sock.family != socket.AF_UNIX:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

    # ------------------------------------------------------------------ the end

    def abort(self, header: Header, payload: bytes) -> list[Parcel]:
        """Drop what has not begun, fill up what has, send one last frame; return the requests that were dropped."""
        dropped = [*self._writer.abort(), *self._reader.drop()]
        self._reader.divert()
        self._doze()
        self.send(header, memoryview(payload))
        return dropped

    def drop(self) -> list[Parcel]:
        """Forget the requests that use this connection, and return them."""
        return [*self._writer.drop(), *self._reader.drop()]

    def close(self) -> None:
        """Give the socket back."""
        if not self.closed:
            self.closed = True
            self.loop.watch(self.sock, 0, None)
            self.sock.close()

    def _watch(self, writing: bool) -> None:
        self._writing = writing
        if writing:
            self.office.held_up()
        if not self.closed:
            self.loop.watch(self.sock, READ * (not self._deaf) | WRITE * writing, self._ready)

    def _ready(self, event: int) -> None:
        if event & WRITE and not self.closed:
            self.flush()
        if event & ~WRITE and not self.closed:
            self.receive()
