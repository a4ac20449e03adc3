"""One established connection: frames out of the callers' memory, and into it."""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
from array import array
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, NamedTuple, Protocol

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.frames import HEADER_NBYTES, Header, parse

__all__ = ["Connection", "Guards", "Incoming", "Office"]

_INBOX_NBYTES = 64 << 10
#: From here on the rest of a payload is received in place, not through the inbox.
_DIRECT_NBYTES = 8 << 10
_BEHIND_NBYTES = 256
#: While more than the first is still to come, it is taken in pieces of up to the second, as each wake-up costs. Linux
#: alone promises room for them.
_LOTS_NBYTES, _PIECE_NBYTES = 64 << 10, 512 << 10
_MAY_DOZE = sys.platform == "linux"
_TAG_NBYTES = 8
_SEAL_NBYTES = 16
#: How many pieces go out before the other direction has its turn.
_SENDS_A_TURN = 8
_FILLER = memoryview(bytes(1 << 16))
_NOWHERE = memoryview(bytearray())
#: The byte behind each payload: it is all there, or was filled up because the group was given up meanwhile.
_GOOD, _BAD = b"\x01", b"\x00"


class Guards(NamedTuple):
    """The keys that guard the headers, and payloads if wanted: of the frames that go out, and of those that come in."""

    mine: bytes
    theirs: bytes
    payloads: bool = False


class Incoming(NamedTuple):
    """What to do with the payload of a frame: where it goes (None: nowhere), what happens when it is there, and whose
    it is."""

    target: memoryview | None
    whole: Callable[[], None]
    request: Request | None = None


class Office(Protocol):
    """What a connection tells its engine; all of it while the engine's lock is held."""

    moved_nbytes: int
    looking: bool

    def frame(self, connection: Any, header: Header) -> Incoming | None:
        """Take a frame; None if its payload must wait until `Connection.resume`."""

    def lost(self, connection: Any, error: ProtocolError | None = None) -> None:
        """Hear that the connection has ended, or that what it brings makes no sense."""

    def watch(self, connection: Connection, reading: bool, writing: bool) -> None:
        """Call `receive` and `flush` when the socket is ready."""

    def held_up(self) -> None:
        """Hear that something waits for room, and is to be sent whether or not anybody waits for it."""


class _Frame(NamedTuple):
    header: Header
    payload: memoryview | None
    request: Request | None
    prefix: bytes


class Connection:
    """One end of a connection to a peer. All methods are called with the engine's lock held."""

    def __init__(self, office: Office, peer: int, sock: socket.socket, guards: Guards | None) -> None:
        self.office, self.peer, self.sock, self.guards = office, peer, sock, guards
        self.closed = self.left = False
        self._unit = HEADER_NBYTES + (_TAG_NBYTES if guards else 0)
        #: How much follows a payload, and what has been made of one that is coming in, if payloads are guarded.
        self._trailer_nbytes = 1 + (_SEAL_NBYTES if guards and guards.payloads else 0)
        self._seal: blake2b | None = None
        self._sent = self._received = 0
        self._queue: deque[_Frame] = deque()
        self._parts: list[bytes | memoryview] = []
        self._request: Request | None = None
        self._has_payload = False
        self._broken = False
        #: How many more pieces of filler take the place of a payload that was given up.
        self._filler = 0
        self._spoilt = False
        self._length = 0
        self._inbox = bytearray(_INBOX_NBYTES)
        self._view = memoryview(self._inbox)
        self._start = self._end = 0
        self._rest = _NOWHERE
        self._skip = 0
        self._whole: Callable[[], None] | None = None
        self._receiver: Request | None = None
        #: A receive whose payload was filled up: it ends with the notice that follows.
        self._doomed: Request | None = None
        self._trailing = False
        self._paused = False
        self._writing = False
        #: How much must have come before this end is woken.
        self._least = 1
        office.watch(self, True, False)

    # ------------------------------------------------------------------ out

    def send(
        self,
        header: Header,
        payload: memoryview | None = None,
        request: Request | None = None,
        prefix: bytes = b"",
    ) -> None:
        """Send a frame behind those that are waiting; end `request` when its last byte has left.

        The prefix goes before the payload, as part of it.
        """
        self._queue.append(_Frame(header, payload, request, prefix))
        if not self._writing and not self._broken:  # if it is, whoever reads will find out why
            self.flush()

    @property
    def idle(self) -> bool:
        """Whether everything has left."""
        return self._broken or self.closed or not (self._parts or self._queue or self._filler or self._spoilt)

    @property
    def unconfirmed(self) -> bool:
        """Whether the peer's machine has yet to confirm some of what has left, as far as this system tells."""
        if self._broken or self.closed or self.sock.family == socket.AF_UNIX:
            return False
        count = array("i", [0])
        with suppress(OSError):
            fcntl.ioctl(self.sock, termios.TIOCOUTQ, count)
        return count[0] > 0

    def flush(self) -> None:
        """Send until the socket is full."""
        for _ in range(_SENDS_A_TURN):
            if not self._parts and not self._next():
                self._watch(writing=False)
                return
            try:
                sent = self.sock.sendmsg(self._parts)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                # What the peer said before it went may still be there to read.
                self._broken = True
                self._watch(writing=False)
                return
            self._advance(sent)
        self._watch(writing=bool(self._parts or self._queue or self._filler or self._spoilt))

    def push(self) -> None:
        """Go on with what waits until the socket has room, without being told that it has."""
        if self._writing and not self.closed:
            self.flush()

    def abort(self, header: Header, payload: bytes) -> list[Request]:
        """Drop what has not begun, fill up what has, send one last frame; return the requests that were dropped."""
        dropped = self.drop()
        if len(self._parts) > 1 and self._has_payload:
            # In place of the caller's memory, which is the caller's again; the peer is told that it is of no use.
            *head, pending, _ = self._parts
            self._filler, rest = divmod(len(pending), len(_FILLER))
            self._has_payload, self._spoilt = False, True
            self._parts = [*head, _FILLER[:rest]] if rest else head
        self._divert()
        self.send(header, memoryview(payload))
        return dropped

    def drop(self) -> list[Request]:
        """Forget the requests that use this connection, and return them."""
        dropped = [frame.request for frame in self._queue if frame.request is not None]
        mine = self._request, self._receiver, self._doomed
        dropped += [request for request in mine if request is not None]
        self._queue.clear()
        self._request = self._receiver = self._doomed = None
        return dropped

    def close(self) -> None:
        """Give the socket back."""
        if not self.closed:
            self.closed = True
            self.office.watch(self, False, False)
            self.sock.close()

    def _next(self) -> bool:
        """Begin with the next frame; tell whether there is one."""
        if self._filler:
            self._filler -= 1
            self._parts = [_FILLER]
            return True
        if self._spoilt:
            self._spoilt = False
            self._parts = [_BAD + bytes(self._trailer_nbytes - 1)]
            return True
        if not self._queue:
            return False
        header, payload, self._request, prefix = self._queue.popleft()
        head = header.pack()
        if self.guards:
            head += _tag(self.guards.mine, self._sent, head)
            self._sent += 1
        self._has_payload = payload is not None and len(payload) > 0
        trailer = _GOOD
        if self._trailer_nbytes > 1 and header.payload_nbytes:
            seal = self._new_seal(outwards=True)
            seal.update(prefix)
            seal.update(payload or b"")
            trailer += seal.digest()
        if payload is not None and len(payload):
            self._parts = [head + prefix, payload, trailer]
        else:
            self._parts = [head + prefix + trailer if prefix else head]
        return True

    def _advance(self, sent: int) -> None:
        self.office.moved_nbytes += sent
        parts = self._parts
        while parts and sent >= len(parts[0]):
            sent -= len(parts.pop(0))
        if sent:
            parts[0] = memoryview(parts[0])[sent:]
        if not parts and self._request is not None:
            self._request.end()
            self._request = None

    # ------------------------------------------------------------------ in

    def receive(self) -> None:
        """Take in what has come."""
        while not (self._paused or self.closed):
            if self._whole is None:
                if self._end - self._start >= self._unit:
                    self._begin()
                    continue
            elif self._end - self._start >= (self._trailer_nbytes if self._trailing else 1):
                self._take_trailer() if self._trailing else self._copy()
                continue
            try:
                count, room = self._take()
            except (BlockingIOError, InterruptedError):
                self._doze()
                return
            except OSError:
                count, room = 0, 1
            if count == 0:
                self.office.lost(self)
                return
            self.office.moved_nbytes += count
            if count < room:
                self._digest()
                self._doze()
                return

    def _take(self) -> tuple[int, int]:
        """Read from the socket once; return how many bytes came, and how many could have."""
        rest = self._rest
        if len(rest) < _DIRECT_NBYTES:
            into = self._room()
            count = self.sock.recv_into(into)
            self._end += count
            return count, len(into)
        # The inbox is empty. What is behind the payload comes along, but little of it, as it has to be copied.
        count = self.sock.recvmsg_into((rest, self._view[:_BEHIND_NBYTES]))[0]
        if self._seal is not None:
            self._seal.update(rest[:count])
        self._rest = rest[count:]
        self._start, self._end = 0, max(0, count - len(rest))
        if count:
            self._settle()
        return count, len(rest) + _BEHIND_NBYTES

    def _doze(self) -> None:
        """Sleep on until so much has come as is worth to be woken for; who looks takes what there is."""
        rest = len(self._rest)
        least = min(rest, _PIECE_NBYTES) if rest >= _LOTS_NBYTES and _MAY_DOZE and not self.office.looking else 1
        if least != self._least and not self.closed:
            self._least = least
            if self.sock.family != socket.AF_UNIX:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

    def resume(self, incoming: Incoming) -> None:
        """Go on with a frame whose payload had to wait."""
        self._paused = False
        self._open(self._length, incoming)
        self._watch(writing=self._writing)
        self.receive()

    def _digest(self) -> None:
        """Take what the inbox holds, without asking the socket for more."""
        while not (self._paused or self.closed):
            if self._whole is None:
                if self._end - self._start < self._unit:
                    return
                self._begin()
            elif self._end - self._start >= (self._trailer_nbytes if self._trailing else 1):
                self._take_trailer() if self._trailing else self._copy()
            else:
                return

    def _begin(self) -> None:
        try:
            header = parse(self._inbox, self._start)
            if self.guards:
                at = self._start + HEADER_NBYTES
                expected = _tag(self.guards.theirs, self._received, bytes(self._view[self._start : at]))
                self._received += 1
                if not compare_digest(expected, self._view[at : at + _TAG_NBYTES]):
                    raise ProtocolError("a frame's header was changed on its way")
            self._start += self._unit
            incoming = self.office.frame(self, header)
        except ProtocolError as error:
            self.office.lost(self, error)
            return
        self._length = header.payload_nbytes
        if incoming is None:
            self._paused = True
            self._watch(writing=self._writing)
        elif not self.closed:
            self._open(self._length, incoming)

    def _open(self, length: int, incoming: Incoming) -> None:
        if incoming.target is None:
            self._skip = length
        else:
            self._rest = incoming.target
        self._whole, self._receiver = incoming.whole, incoming.request
        if self._trailer_nbytes > 1 and length:
            self._seal = self._new_seal(outwards=False)
        self._settle()

    def _new_seal(self, outwards: bool) -> blake2b:
        """Return what takes in the payload of the latest frame."""
        assert self.guards is not None
        key, number = (self.guards.mine, self._sent) if outwards else (self.guards.theirs, self._received)
        return blake2b(number.to_bytes(8, "little"), key=key, digest_size=_SEAL_NBYTES)

    def _copy(self) -> None:
        """Move bytes of the payload from the inbox to where they belong."""
        if self._skip:
            count = min(self._skip, self._end - self._start)
            self._skip -= count
            if self._seal is not None:
                self._seal.update(self._view[self._start : self._start + count])
        else:
            count = min(len(self._rest), self._end - self._start)
            self._rest[:count] = self._view[self._start : self._start + count]
            if self._seal is not None:
                self._seal.update(self._view[self._start : self._start + count])
            self._rest = self._rest[count:]
        self._start += count
        self._settle()

    def _settle(self) -> None:
        """If the payload is whole, wait for the byte behind it."""
        if not self._skip and not len(self._rest) and self._whole is not None:
            if self._length:
                self._trailing = True
            else:
                self._finish()

    def _finish(self) -> None:
        whole, self._whole, self._rest, self._receiver = self._whole, None, _NOWHERE, None
        if whole is not None:
            whole()

    def _take_trailer(self) -> None:
        self._trailing = False
        good = self._inbox[self._start] == _GOOD[0]
        seal, self._seal = self._seal, None
        said = self._view[self._start + 1 : self._start + self._trailer_nbytes]
        self._start += self._trailer_nbytes
        if good and seal is not None and not compare_digest(seal.digest(), said):
            self.office.lost(self, ProtocolError("a frame's data was changed on its way"))
            return
        if not good:
            self._doomed, self._whole = self._receiver, _nothing
        self._finish()

    def _room(self) -> memoryview:
        if self._start == self._end:
            self._start = self._end = 0
        elif len(self._inbox) - self._end < _DIRECT_NBYTES:
            rest = bytes(self._view[self._start : self._end])
            self._view[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return self._view[self._end :]

    def _divert(self) -> None:
        """Write no more into anybody's memory."""
        if self._paused:
            self._paused = False
            self._open(self._length, Incoming(None, _nothing))
        elif self._whole is not None:
            self._skip += len(self._rest)
            self._rest, self._whole, self._receiver = _NOWHERE, _nothing, None
            self._doze()
            if not self._trailing:
                self._settle()

    def _watch(self, writing: bool) -> None:
        self._writing = writing
        if writing:
            self.office.held_up()
        if not self.closed:
            self.office.watch(self, not self._paused, writing)


def _tag(key: bytes, number: int, head: bytes) -> bytes:
    return blake2b(number.to_bytes(8, "little") + head, key=key, digest_size=_TAG_NBYTES).digest()


def _nothing() -> None:
    """Do nothing."""
