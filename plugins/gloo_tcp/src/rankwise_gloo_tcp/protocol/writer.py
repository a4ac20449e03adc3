"""Turns frames into the bytes that go out on a connection, gathered from wherever they lie."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from rankwise_gloo_tcp.protocol.frames import Header
from rankwise_gloo_tcp.protocol.guards import Guard, Guards
from rankwise_gloo_tcp.protocol.message import Message

if TYPE_CHECKING:
    from rankwise.backends import blake2b

#: The byte behind each payload: it is all there, or was filled up because the group was given up meanwhile.
GOOD, BAD = b"\x01", b"\x00"
#: How much of a payload is sealed, and given to the system, in one go. While it takes that in it does not hear what the
#: other end confirms, and sends nothing behind what had room there: a MiB in one go takes twice as long.
PIECE_NBYTES = 256 << 10
_FILLER = memoryview(bytes(PIECE_NBYTES))


class _Frame(NamedTuple):
    header: Header
    payload: memoryview | None
    request: Message | None
    prefix: bytes


class Writer:
    """The outgoing half of a connection.

    The channel sends what `turn` returns and tells by `sent` how many bytes have left, as long as `next` finds some.
    What was returned is as long until it has left, whatever takes its place: an encrypted socket tells only later of
    what it has taken.
    """

    def __init__(self, guards: Guards | None) -> None:
        self.guard = Guard(guards.mine) if guards else None
        self._seals = bool(guards and guards.payloads)
        self._queue: deque[_Frame] = deque()
        #: What is to leave next, in this order, with one piece of a payload at the most.
        self._parts: list[bytes | memoryview] = []
        self._request: Message | None = None
        #: The payload of which pieces leave, until filler takes its place; and how much of it has not had its turn.
        self._payload: memoryview | None = None
        self._rest_nbytes = 0
        #: What follows it.
        self._verdict = GOOD
        self._seal: blake2b | None = None

    def put(self, header: Header, payload: memoryview | None, request: Message | None, prefix: bytes) -> None:
        """Line a frame up; the request ends when its last byte has left."""
        self._queue.append(_Frame(header, payload, request, prefix))

    def whole(self, head: bytes, data: bytes | memoryview) -> bytes:
        """Return a frame with a little data, whole, as it is to leave now; nothing while others are before it.

        `left` is told what has not left of it.
        """
        if not self.idle:
            return b""
        if self.guard is not None:
            frame = head + self.guard.tag(head) + data
        else:
            frame = head + data
        if data:
            self._judge(GOOD, data)
            frame += self._trailer()
        return frame

    def left(self, frame: bytes, nbytes: int) -> None:
        """Take what is left of a whole frame of which so many bytes have gone."""
        self._payload = None  # none of it is the caller's memory
        self._parts = [memoryview(frame)[nbytes:]]

    def end_with_rest(self, request: Message) -> None:
        """End a request when what is left of a frame has left."""
        self._request = request

    @property
    def idle(self) -> bool:
        """Whether everything has left."""
        return not (self._parts or self._rest_nbytes or self._queue)

    def next(self) -> bool:
        """See to it that something is to leave in this turn; false if there is nothing."""
        if not self._parts and self._rest_nbytes:
            self._fill()
        elif not self._parts and self._queue:
            self._begin(*self._queue.popleft())
        return bool(self._parts)

    def turn(self) -> list[bytes | memoryview]:
        """Return what goes out in one go."""
        return self._parts

    def sent(self, nbytes: int) -> None:
        """Drop so many bytes, which have left."""
        parts = self._parts
        while parts and nbytes >= len(parts[0]):
            nbytes -= len(parts.pop(0))
        if nbytes:
            parts[0] = memoryview(parts[0])[nbytes:]
        if not parts and not self._rest_nbytes:
            self._payload = None  # the caller's memory is not kept
            if self._request is not None:
                request, self._request = self._request, None
                request.end()

    def abort(self) -> list[Message]:
        """Drop what has not begun, fill up what has; return the requests that were dropped.

        The filler takes the place of the caller's memory, which is the caller's again; the peer learns that what it
        got is of no use.
        """
        dropped = self.drop()
        is_last = not self._rest_nbytes  # then the trailer stands behind the piece, if there still is one
        place = len(self._parts) - 1 - is_last
        if self._payload is not None and (place >= 0 or not is_last):
            self._payload = None
            self._judge(BAD)
            if place >= 0:
                self._parts[place:] = [_FILLER[: len(self._parts[place])]]
            if is_last:
                self._parts.append(self._trailer())
        return dropped

    def drop(self) -> list[Message]:
        """Forget the frames that have not begun, and return the requests that have not ended."""
        dropped = [frame.request for frame in self._queue if frame.request is not None]
        if self._request is not None:
            dropped.append(self._request)
        self._queue.clear()
        self._request = None
        return dropped

    def _begin(self, header: Header, payload: memoryview | None, request: Message | None, prefix: bytes) -> None:
        head = header.pack()
        if self.guard is not None:
            head += self.guard.tag(head)
        self._request, self._payload = request, payload or None
        self._rest_nbytes = len(payload or b"")
        self._parts = [head + prefix]
        if header.payload_nbytes:
            self._judge(GOOD, prefix)
            self._fill()

    def _fill(self) -> None:
        """Let the next piece of a payload leave, and behind the last one what follows it."""
        payload, rest = self._payload, self._rest_nbytes
        piece = _FILLER[:rest] if payload is None else payload[len(payload) - rest :][:PIECE_NBYTES]
        self._rest_nbytes -= len(piece)
        if piece:
            self._parts.append(piece)
        if self._seal is not None and payload is not None:
            self._seal.update(piece)
        if not self._rest_nbytes:
            self._parts.append(self._trailer())

    def _judge(self, verdict: bytes, data: bytes | memoryview = b"") -> None:
        """Say what is to follow a payload that begins with this data; the seal of a bad one tells of nothing else."""
        self._verdict = verdict
        if self._seals:
            assert self.guard is not None
            self._seal = self.guard.seal()
            self._seal.update(data)

    def _trailer(self) -> bytes:
        """Return what follows a payload."""
        if self._seal is None:
            return self._verdict
        self._seal.update(self._verdict)
        return self._verdict + self._seal.digest()
