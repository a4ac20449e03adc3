"""A connection to a rank of the same machine through shared memory: frames in rings, each written by one rank only.

An engine uses it in place of a connection over a socket. A long payload follows its frame in several pieces.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.protocol.flow import WINDOW_NBYTES
from rankwise_gloo_tcp.protocol.frames import Header, Kind, check
from rankwise_gloo_tcp.state import PipeState
from rankwise_gloo_tcp.transport.rings import PIECE, Rings

if TYPE_CHECKING:
    from rankwise_gloo_tcp.protocol.message import Destination, Message
    from rankwise_gloo_tcp.transport.channel import FrameHandler

#: A header is just the four words that a ring has.
_WORDS = struct.Struct("<QQQQ")


class _Frame(NamedTuple):
    header: Header
    payload: memoryview
    request: Message | None


#: The queue of pipes in which no frame has waited yet; nothing is ever put into it.
_NO_FRAMES: deque[_Frame] = deque()


class Pipe(PipeState):
    """One end of both directions to a peer: a `Channel` through memory.

    Args:
        handler: The engine.
        peer: The peer's group rank.
        rings: The memory of both directions.
    """

    __slots__ = (
        *("_expected", "_filled", "_incoming", "_piece_nbytes", "closed", "eager_nbytes", "guarded"),
        *("handler", "has_news", "left", "peer", "rings", "small_nbytes", "wants_room"),
    )

    way = "pipe"
    in_memory, ends_with_peer, credit_waits, unconfirmed = True, False, False, False

    def __init__(self, handler: FrameHandler, peer: int, rings: Rings) -> None:
        self.handler, self.peer, self.rings = handler, peer, rings
        self.closed = self.left = False
        #: Nobody else can write there, so that headers need no guard.
        self.guarded = False
        #: Up to here a message leaves whole; longer payloads are cut into pieces of this size at the most.
        self.eager_nbytes = self.small_nbytes = rings.eager_nbytes
        self._piece_nbytes = rings.capacity // 4
        #: Whether this end has asked to be woken when there is room.
        self.wants_room = False
        self.queue = _NO_FRAMES
        #: The long payload that is going out, and that which is coming in.
        self.rest: _Frame | None = None
        self._incoming: Destination | None = None
        self._filled = self._expected = 0
        #: Tells whether something has come that has not been read. Needs no lock.
        self.has_news = rings.has_news

    # ------------------------------------------------------------------ out

    def post(self, head: bytes, data: bytes | memoryview) -> bool:
        """Send a message; false if it cannot be done now: it is long, or others are before it, or there is no room."""
        if len(data) > self.eager_nbytes or self.queue or self.rest:
            return False
        first, length, marks, address = _WORDS.unpack(head)
        if not self.rings.write(first, length, marks, address, memoryview(data)):
            return False
        self.rings.wake()
        return True

    def go_on_with(self, rest: memoryview, request: Message) -> None:
        """Send the rest of a message whose beginning has left."""
        self.rest = _Frame(Header(Kind.MESSAGE), rest, request)
        self.flush()

    def _ask_for_room(self) -> None:
        self.wants_room = True
        self.rings.ask_for_room()

    def send(
        self,
        header: Header,
        payload: memoryview | None = None,
        request: Message | None = None,
        prefix: bytes = b"",
    ) -> None:
        """Send a frame behind those that are waiting; end `request` when its last byte has left."""
        data = payload if payload is not None else memoryview(b"")
        if self.queue is _NO_FRAMES:
            self.queue = deque()
        self.queue.append(_Frame(header, memoryview(prefix + bytes(data)) if prefix else data, request))
        self.flush()

    def end_with_rest(self, request: Message) -> None:
        """End a request: what was posted has left whole."""
        request.end()

    @property
    def is_halfway(self) -> bool:
        """Whether something is leaving or coming of which a part has yet to."""
        return not self.idle or self._incoming is not None

    def silent_s(self) -> float:
        """Return nothing: the other end is on this machine."""
        return 0.0

    def ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Return nothing: memory has no addresses."""
        return ("", 0), ("", 0)

    @property
    def came_nbytes(self) -> int:
        """How many bytes have come, headers included."""
        return self.rings.tail

    @property
    def moved_nbytes(self) -> int:
        """How many bytes have gone and come, headers included."""
        return self.rings.head + self.rings.tail

    @property
    def idle(self) -> bool:
        """Whether everything has left."""
        return self.closed or self.left or not (self.queue or self.rest)

    def flush(self) -> None:
        """Write what there is room for."""
        wrote = False
        while (self.rest or self.queue) and not self.closed:
            if not (self._go_on() if self.rest else self._start()):
                self._ask_for_room()
                # The peer may have made room before it could know that it is wanted.
                if not (self._go_on() if self.rest else self._start()):
                    self.handler.held_up()
                    break
            wrote = True
        if wrote:
            self.rings.wake()

    def push(self) -> None:
        """Go on with what waits for room; what still does asks for it again."""
        self.wants_room = False
        if not self.closed and not self.idle:
            self.flush()

    def _start(self) -> bool:
        frame = self.queue[0]
        header, payload = frame.header, frame.payload
        first = int(header.kind | header.flags << 8 | header.tag << 32)
        inline = len(payload) <= self.eager_nbytes
        data = payload if inline else payload[:0]
        if not self.rings.write(first, header.length, header.ident | header.dtype << 32, header.address, data):
            return False
        self.queue.popleft()
        if inline:
            self._done(frame)
        else:
            self.rest = frame
        return True

    def _go_on(self) -> bool:
        frame = self.rest
        assert frame is not None
        piece = frame.payload[: self._piece_nbytes]
        if not self.rings.write(PIECE, len(piece), 0, 0, piece):
            return False
        left = frame.payload[len(piece) :]
        self.rest = frame._replace(payload=left) if len(left) else None
        if self.rest is None:
            self._done(frame)
        return True

    def _done(self, frame: _Frame) -> None:
        if frame.request is not None:
            frame.request.end()

    # ------------------------------------------------------------------ in

    def has_room(self) -> bool:
        """Tell whether the peer has made the room that this end has asked for. Needs no lock."""
        return self.wants_room and self.rings.has_room()

    def take(self, head: bytes, room: memoryview) -> int | None:
        """Receive the next frame if it is a message of this header's tag and dtype that fits; see `Channel`.

        A dtype of 0 is that of any message.
        """
        if not self.has_news():
            return None
        first, _, marks, _ = _WORDS.unpack(head)
        return self.rings.take(first, marks >> 32, room)

    def receive(self) -> None:
        """Take in what has come."""
        rings = self.rings
        try:
            while not self.closed and (words := rings.next()) is not None:
                first, length, marks, address = words
                kind = first & 0xFF
                if kind == PIECE and length <= self._piece_nbytes:
                    self._fill(rings.payload(length))
                    rings.advance(length)
                else:
                    flags, tag, ident, dtype = first >> 8 & 0xFF, first >> 32, marks & 0xFFFFFFFF, marks >> 32
                    header = Header(kind, flags, tag, length, ident, dtype, address)
                    check(header)
                    if kind == Kind.MESSAGE and length > WINDOW_NBYTES:
                        raise ProtocolError(f"a message of {length} bytes was not announced")
                    self._take_in(header)
        except ProtocolError as error:
            self.close()
            self.handler.garbled(self, error)

    def go_on_filling(self, incoming: Destination, filled: int, nbytes: int) -> None:
        """Receive the rest of a message whose beginning has come."""
        self._incoming, self._filled, self._expected = incoming, filled, nbytes

    def _take_in(self, header: Header) -> None:
        nbytes = header.payload_nbytes
        inline = nbytes if nbytes <= self.eager_nbytes else 0
        incoming = self.handler.frame(self, header)
        self._incoming, self._filled, self._expected = incoming, 0, nbytes
        if inline or not nbytes:
            self._fill(self.rings.payload(inline))
        self.rings.advance(inline)

    def _fill(self, piece: memoryview) -> None:
        incoming = self._incoming
        if incoming is None:
            return  # given up meanwhile
        if self._filled + len(piece) > self._expected:
            raise ProtocolError("a payload is longer than it was said to be")
        if incoming.target is not None and not (incoming.request is not None and incoming.request.done):
            incoming.target[self._filled : self._filled + len(piece)] = piece
        self._filled += len(piece)
        if self._filled >= self._expected:
            self._incoming = None
            incoming.whole()

    # ------------------------------------------------------------------ the end

    def abort(self, header: Header, payload: bytes) -> list[Message]:
        """Drop what has not left, and wake the peer, which finds the notice on the board."""
        dropped = self.drop()
        self.rest = self._incoming = None
        self.rings.wake()
        return dropped

    def drop(self) -> list[Message]:
        """Forget the requests that use this pipe, and return them."""
        frames = [*self.queue, *([self.rest] if self.rest else [])]
        dropped = [frame.request for frame in frames if frame.request is not None]
        if self._incoming is not None and self._incoming.request is not None:
            dropped.append(self._incoming.request)
        self.queue.clear()
        return dropped

    def after_fork(self) -> None:
        """Do nothing: the memory ends with the last process that uses it."""

    def close(self) -> None:
        """Let the memory go."""
        if not self.closed:
            self.closed = True
            self.rings.close()
