"""One established connection over a socket: it moves the bytes of frames that `protocol` reads and writes."""

from __future__ import annotations

import fcntl
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.machine.poller import READ, WRITE
from rankwise_gloo_tcp.protocol.frames import ANY_LENGTH, Header
from rankwise_gloo_tcp.protocol.guards import Guards
from rankwise_gloo_tcp.protocol.message import Message
from rankwise_gloo_tcp.protocol.reader import Reader
from rankwise_gloo_tcp.protocol.writer import Writer
from rankwise_gloo_tcp.state import ConnectionState
from rankwise_gloo_tcp.transport import silence
from rankwise_gloo_tcp.transport.channel import FrameHandler
from rankwise_network import interface

#: While more than the first is still to come, it is taken in pieces of up to the second, as each wake-up costs. Linux
#: alone promises room for them.
_LOTS_NBYTES, _PIECE_NBYTES = 64 << 10, 512 << 10
_MAY_DOZE = sys.platform == "linux"
#: How many pieces go out before the other direction has its turn, and whoever wants the engine's lock: to seal one
#: takes as long as to send several.
_SENDS_A_TURN, _SEALED_A_TURN = 8, 1
#: The longest message that goes over a socket as one piece of bytes, and is looked for without a request.
SMALL_NBYTES = 8 << 10


class Descriptors(Protocol):
    """What a connection asks of the loop."""

    moved_nbytes: int
    looking: bool

    def watch(self, sock: socket.socket, mask: int, handler: Any) -> None:
        """Call `handler` when a socket is ready; for a mask of 0 no more."""


class Connection(ConnectionState):
    """One end of a connection to a peer: a `Channel` over a socket."""

    in_memory, ends_with_peer, credit_waits = False, True, True
    eager_nbytes, small_nbytes, rings = ANY_LENGTH, SMALL_NBYTES, None

    def __init__(
        self, handler: FrameHandler, loop: Descriptors, peer: int, sock: socket.socket, guards: Guards | None
    ) -> None:
        self.handler, self.loop, self.peer, self.sock = handler, loop, peer, sock
        self.closed = self.left = False
        self.way = "unix" if sock.family == socket.AF_UNIX else "tls" if hasattr(sock, "holds") else "tcp"
        #: Tells whether something that has come is in memory, where no poller sees it.
        self._holds: Callable[[], object] | None = getattr(sock, "holds", None)
        self.came_nbytes = self.went_nbytes = 0
        self.guarded = guards is not None
        self.broken = self.writing = self.deaf = self._asks = False
        self._writer = Writer(guards)
        self._sends_a_turn = _SEALED_A_TURN if guards is not None and guards.payloads else _SENDS_A_TURN
        self.reader = Reader(partial(handler.frame, self), guards)
        self.mine, self.theirs, self.fd = self._writer.guard, self.reader.guard, sock.fileno()
        self.tls = getattr(sock, "tls", None)
        self.plain = (self._holds is None or self.tls is not None) and not self.reader.seals
        #: How much must have come before this end is woken.
        self._least = 1
        self._watch(writing=False)

    # ------------------------------------------------------------------ out

    def send(
        self, header: Header, payload: memoryview | None = None, request: Message | None = None, prefix: bytes = b""
    ) -> None:
        """Send a frame behind those that are waiting; end `request` when its last byte has left.

        The prefix goes before the payload, as part of it.
        """
        self._writer.put(header, payload, request, prefix)
        if not self.writing and not self.broken:  # if it is, the next read finds out why
            self.flush()

    def post(self, head: bytes, data: bytes | memoryview) -> bool:
        """Send a small message; false if others are before it, or the connection has ended.

        Where the socket has not taken all of it, this end is not `idle`, and `end_with_rest` tells when it has.
        """
        if self.broken or self.closed:
            return False
        frame = self._writer.whole(head, data)
        if not frame:
            return False
        try:
            sent = self.sock.send(frame)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._break()
            return False
        self.loop.moved_nbytes += sent
        self.went_nbytes += sent
        if sent < len(frame):
            self._writer.left(frame, sent)
            self._watch(writing=True)
        return True

    def keep(self, rest: bytes) -> None:
        """Send what compiled code has not sent of a frame, before which nothing waits."""
        self._writer.left(rest, 0)
        self._watch(writing=True)

    def end_with_rest(self, request: Message) -> None:
        """End a request when what is leaving has left."""
        self._writer.end_with_rest(request)

    @property
    def idle(self) -> bool:
        """Whether everything has left."""
        return self.broken or self.closed or self._writer.idle

    @property
    def unconfirmed(self) -> bool:
        """Whether the peer's machine has yet to confirm some of what has left, as far as this system tells."""
        if self.broken or self.closed or self.way == "unix":
            return False
        import termios  # only now: connections that leave this machine have use for it

        nbytes = bytearray(4)
        with suppress(OSError):
            fcntl.ioctl(self.sock, termios.TIOCOUTQ, nbytes)
        return any(nbytes)

    @property
    def is_halfway(self) -> bool:
        """Whether something is leaving or coming of which a part has yet to."""
        return not self.idle or self.reader.missing_nbytes > 0

    def silent_s(self) -> float:
        """Return for how long the peer's machine has answered nothing; it is asked from the first call on."""
        if self.broken or self.closed or self.way == "unix":
            return 0.0
        if not self._asks:
            self._asks = True
            silence.ask(self.sock)
        return silence.silent_s(self.sock)

    def ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Return the address and the port of this end, and of the other."""
        here, there = self.sock.getsockname(), self.sock.getpeername()
        return (interface.address_of(here), here[1]), (interface.address_of(there), there[1])

    def flush(self) -> None:
        """Send until the socket is full."""
        writer = self._writer
        for _ in range(self._sends_a_turn):
            if not writer.next():
                self._watch(writing=False)
                return
            try:
                sent = self.sock.sendmsg(writer.turn())
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self._break()
                return
            self.loop.moved_nbytes += sent
            self.went_nbytes += sent
            writer.sent(sent)
        self._watch(writing=not writer.idle)

    def _break(self) -> None:
        """Send nothing any more. What the peer said before it went may still be there to read."""
        self.broken = True
        self._watch(writing=False)

    def push(self) -> None:
        """Go on with what waits until the socket has room, without being told that it has."""
        if self.writing and not self.closed:
            self.flush()

    def has_room(self) -> bool:
        """Tell nothing: the poller does."""
        return False

    @property
    def moved_nbytes(self) -> int:
        """How much has gone and come."""
        return self.came_nbytes + self.went_nbytes

    # ------------------------------------------------------------------ in

    def has_news(self) -> bool:
        """Tell that something may have come: only a look at the socket knows."""
        return True

    def receive(self) -> None:
        """Take in what has come."""
        while not (self.closed or self.deaf):
            room = self.reader.room()
            try:
                count = self.sock.recvmsg_into(room)[0] if len(room) > 1 else self.sock.recv_into(room[0])
            except (BlockingIOError, InterruptedError):
                self._doze()
                return
            except OSError:
                count = 0
            except ProtocolError as error:
                self._garbled(error)
                return
            if count == 0:
                self.handler.lost(self)
                return
            self.loop.moved_nbytes += count
            self.came_nbytes += count
            is_all = count < sum(map(len, room))
            try:
                self.reader.received(count)
            except ProtocolError as error:
                self._garbled(error)
                return
            if is_all:
                self._doze()
                return

    def take(self, head: bytes, room: memoryview) -> int | None:
        """Receive the next frame if it is the small message with this header, which fills `room`; see `Channel`."""
        reader = self.reader
        nbytes = reader.expect(len(room))
        if self.closed or self.deaf or not nbytes:
            return -1
        try:
            count = self.sock.recv_into(reader.inbox, nbytes)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            count = 0
        except ProtocolError as error:
            self._garbled(error)
            return -1
        if count == 0:
            self.handler.lost(self)
            return -1
        self.loop.moved_nbytes += count
        self.came_nbytes += count
        try:
            taken = len(room) if reader.expected(count, head, room) else -1
        except ProtocolError as error:
            self._garbled(error)
            return -1
        if self._holds is not None and self._holds():
            self.receive()
        return taken

    def feed(self, data: bytes) -> None:
        """Take in what compiled code has read and not used."""
        rest = memoryview(data)
        try:
            while len(rest) and not self.deaf:
                room = self.reader.room()[0][: len(rest)]
                room[:] = rest[: len(room)]
                rest = rest[len(room) :]
                self.reader.received(len(room))
        except ProtocolError as error:
            self._garbled(error)
        if self._holds is not None and self._holds():
            self.receive()

    def _garbled(self, error: ProtocolError) -> None:
        # The peer is to hear why before the connection ends.
        self.deaf = True
        self._watch(writing=self.writing)
        self.handler.garbled(self, error)

    def _doze(self) -> None:
        """Sleep on until so much has come as is worth to be woken for; who looks takes what there is."""
        rest = self.reader.missing_nbytes
        least = min(rest, _PIECE_NBYTES) if rest >= _LOTS_NBYTES and _MAY_DOZE and not self.loop.looking else 1
        if least != self._least and not self.closed:
            self._least = least
            if self.way != "unix":
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

    # ------------------------------------------------------------------ the end

    def abort(self, header: Header, payload: bytes) -> list[Message]:
        """Drop what has not begun, fill up what has, send one last frame; return the requests that were dropped."""
        dropped = [*self._writer.abort(), *self.reader.drop()]
        self.reader.divert()
        self._doze()
        self.send(header, memoryview(payload))
        return dropped

    def drop(self) -> list[Message]:
        """Forget the requests that use this connection, and return them."""
        return [*self._writer.drop(), *self.reader.drop()]

    def close(self) -> None:
        """Give the socket back."""
        if not self.closed:
            self.closed = True
            self.loop.watch(self.sock, 0, None)
            self.sock.close()

    def after_fork(self) -> None:
        """Close the child's copy of the socket."""
        self.sock.close()

    def _watch(self, writing: bool) -> None:
        self.writing = writing
        if writing:
            self.handler.held_up()
        if not self.closed:
            self.loop.watch(self.sock, READ * (not self.deaf) | WRITE * writing, self._ready)

    def _ready(self, event: int) -> None:
        if event & WRITE and not self.closed:
            self.flush()
        if event & ~WRITE and not self.closed:
            self.receive()
