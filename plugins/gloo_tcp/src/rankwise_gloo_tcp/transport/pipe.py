"""A connection to a rank of the same machine through shared memory: frames in rings, each written by one rank only.

An engine uses it in place of a connection over a socket. A frame lies in the ring in one piece: its header as four
words, then its payload; a longer payload follows in several pieces. Each end counts in bytes how far it has come. A
rank that sleeps says so in shared memory, and a byte in the pipe that its poller watches wakes it.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.machine import futex
from rankwise_gloo_tcp.protocol.frames import Header, Kind, check

if TYPE_CHECKING:
    from rankwise_gloo_tcp.protocol.parcel import Incoming, Parcel
    from rankwise_gloo_tcp.transport.connection import Office

__all__ = ["MAX_RANKS", "Pipe", "Sleep", "ring_nbytes"]

#: With more ranks on one machine, connections are made when they are needed.
MAX_RANKS = 64
#: What a rank has for all that others write to it, and the most and the least for each of them.
_RINGS_NBYTES, _MOST_NBYTES, _LEAST_NBYTES = 4 << 20, 1 << 20, 128 << 10
_HEADER_NBYTES = _UNIT = 32
_CONTROL_NBYTES = 256
#: Words of the control block: how far the writer has come and whether it waits for room; how far the reader has.
_HEAD, _WANTS_ROOM, _TAIL = 0, 1, 16
#: In place of a kind: nothing more follows until the end of the ring; a piece of a long payload.
_WRAP, _PIECE = 0, 255
#: Kinds whose payload always comes in one piece with the header.
_SHORT = (Kind.MESSAGE, Kind.ABORT, Kind.DTYPE)


def ring_nbytes(size: int) -> int:
    """Return what one direction between two of so many ranks takes."""
    if size > MAX_RANKS:
        return 0
    return _CONTROL_NBYTES + min(max(_RINGS_NBYTES // size & -_UNIT, _LEAST_NBYTES), _MOST_NBYTES)


class Sleep:
    """Where a rank says that it sleeps, and how it is woken."""

    def __init__(self, words: memoryview, index: int, bell: int) -> None:
        self._words, self._index, self._bell = words, index, bell

    def begin(self) -> None:
        """Say that this rank is about to sleep; whatever is written from now on wakes it."""
        self._words[self._index] = 1
        futex.fence()

    def end(self) -> None:
        """Say that it is awake."""
        self._words[self._index] = 0

    def wake(self) -> None:
        """Wake another rank if it sleeps."""
        futex.fence()
        if self._words[self._index]:
            self._words[self._index] = 0
            with suppress(OSError):  # it is being woken already, or has gone
                os.write(self._bell, b"b")

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._bell)


class _Frame(NamedTuple):
    header: Header
    payload: memoryview
    request: Parcel | None


class Pipe:
    """One end of both directions to a peer. All methods are called with the engine's lock held.

    Args:
        office: The engine.
        peer: The peer's group rank.
        out: The memory of the direction to the peer.
        into: The memory of the direction from it.
        sleep: The peer's.
    """

    def __init__(self, office: Office, peer: int, out: memoryview, into: memoryview, sleep: Sleep) -> None:
        self.office, self.peer, self.sleep = office, peer, sleep
        self.closed = self.left = False
        #: Nobody else can write there, so that headers need no guard.
        self.guarded = False
        self._out, self._in = out[_CONTROL_NBYTES:], into[_CONTROL_NBYTES:]
        self._out_words, self._in_words = out.cast("Q"), into.cast("Q")
        self._capacity = len(self._out)
        #: Up to here a message leaves at once; longer payloads are cut into pieces of this size.
        self.eager_nbytes = self._capacity // 8
        self._piece_nbytes = self._capacity // 4
        self._head = self._tail = 0
        #: Whether this end has asked to be woken when there is room.
        self.wants_room = False
        self._queue: deque[_Frame] = deque()
        #: The long payload that is going out, and that which is coming in.
        self._rest: _Frame | None = None
        self._incoming: Incoming | None = None
        self._filled = self._expected = 0

    # ------------------------------------------------------------------ out

    def post(self, tag: int, dtype: int, data: memoryview) -> bool:
        """Send a message at once; false if it cannot be: it is long, or others are before it, or there is no room."""
        nbytes = len(data)
        if nbytes > self.eager_nbytes or self._queue or self._rest:
            return False
        if not self._write(_message(tag), nbytes, dtype << 32, 0, data):
            return False
        self.sleep.wake()
        return True

    def _ask_for_room(self) -> None:
        self.wants_room = True
        self._out_words[_WANTS_ROOM] = 1
        futex.fence()

    def send(
        self,
        header: Header,
        payload: memoryview | None = None,
        request: Parcel | None = None,
        prefix: bytes = b"",
    ) -> None:
        """Send a frame behind those that are waiting; end `request` when its last byte has left."""
        data = payload if payload is not None else memoryview(b"")
        self._queue.append(_Frame(header, memoryview(prefix + bytes(data)) if prefix else data, request))
        self.flush()

    @property
    def moved_nbytes(self) -> int:
        """How many bytes have gone and come, headers included."""
        return self._head + self._tail

    @property
    def idle(self) -> bool:
        """Whether everything has left."""
        return self.closed or self.left or not (self._queue or self._rest)

    def flush(self) -> None:
        """Write what there is room for."""
        wrote = False
        while (self._rest or self._queue) and not self.closed:
            if not (self._go_on() if self._rest else self._start()):
                self._ask_for_room()
                # The peer may have made room before it could know that it is wanted.
                if not (self._go_on() if self._rest else self._start()):
                    self.office.held_up()
                    break
            wrote = True
        if wrote:
            self.sleep.wake()

    def _start(self) -> bool:
        frame = self._queue[0]
        header, payload = frame.header, frame.payload
        first = int(header.kind | header.flags << 8 | header.tag << 32)
        inline = len(payload) <= self.eager_nbytes
        data = payload if inline else payload[:0]
        if not self._write(first, header.length, header.ident | header.dtype << 32, header.address, data):
            return False
        self._queue.popleft()
        if inline:
            self._done(frame)
        else:
            self._rest = frame
        return True

    def _go_on(self) -> bool:
        frame = self._rest
        assert frame is not None
        piece = frame.payload[: self._piece_nbytes]
        if not self._write(_PIECE, len(piece), 0, 0, piece):
            return False
        left = frame.payload[len(piece) :]
        self._rest = frame._replace(payload=left) if len(left) else None
        if self._rest is None:
            self._done(frame)
        return True

    def _done(self, frame: _Frame) -> None:
        if frame.request is not None:
            frame.request.end()

    def _write(self, first: int, length: int, marks: int, address: int, data: memoryview) -> bool:
        """Write a frame in one piece, and let the peer see it; false if there is no room."""
        words, capacity, head = self._out_words, self._capacity, self._head
        nbytes = _HEADER_NBYTES + (len(data) + 31 & -32)
        at = head % capacity
        skip = capacity - at if capacity - at < nbytes else 0
        if head + skip + nbytes - words[_TAIL] > capacity:
            return False
        if skip:
            words[(_CONTROL_NBYTES + at) // 8] = _WRAP
            at, head = 0, head + skip
        index = (_CONTROL_NBYTES + at) // 8
        words[index], words[index + 1] = first, length
        words[index + 2], words[index + 3] = marks, address
        if len(data):
            self._out[at + _HEADER_NBYTES : at + _HEADER_NBYTES + len(data)] = data
        self._head = words[_HEAD] = head + nbytes
        return True

    # ------------------------------------------------------------------ in

    def has_news(self) -> bool:
        """Tell whether something has come that has not been read. Needs no lock."""
        return bool(self._in_words[_HEAD] != self._tail)

    def has_room(self) -> bool:
        """Tell whether the peer has made the room that this end has asked for. Needs no lock."""
        return self.wants_room and not self._out_words[_WANTS_ROOM]

    def take(self, tag: int, dtype: int, room: memoryview) -> int:
        """Receive the next frame if it is a message of this tag and dtype that fits; return its length, else -1.

        A `dtype` of 0 is that of any message.
        """
        words, at = self._in_words, self._tail % self._capacity
        index = (_CONTROL_NBYTES + at) // 8
        length = int(words[index + 1])
        if words[index] != _message(tag) or length > len(room) or length > self.eager_nbytes:
            return -1
        if dtype and words[index + 2] >> 32 != dtype:
            return -1
        start = at + _HEADER_NBYTES
        room[:length] = self._in[start : start + length]
        self._advance(_HEADER_NBYTES + (length + 31 & -32))
        return length

    def receive(self) -> None:
        """Take in what has come."""
        words = self._in_words
        try:
            while not self.closed and words[_HEAD] != self._tail:
                at = self._tail % self._capacity
                index = (_CONTROL_NBYTES + at) // 8
                first, length = words[index], words[index + 1]
                kind = first & 0xFF
                if kind == _WRAP:
                    self._advance(self._capacity - at)
                elif kind == _PIECE and length <= self._piece_nbytes:
                    self._fill(self._in[at + _HEADER_NBYTES : at + _HEADER_NBYTES + length])
                    self._advance(_HEADER_NBYTES + (length + 31 & -32))
                else:
                    marks = words[index + 2]
                    ident, dtype = marks & 0xFFFFFFFF, marks >> 32
                    header = Header(kind, first >> 8 & 0xFF, first >> 32, length, ident, dtype, words[index + 3])
                    check(header)
                    if kind in _SHORT and length > self.eager_nbytes:
                        raise ProtocolError(f"a frame of kind {kind} and {length} bytes was not announced")
                    self._take_in(header, at + _HEADER_NBYTES)
        except ProtocolError as error:
            self.close()
            self.office.garbled(self, error)

    def _take_in(self, header: Header, start: int) -> None:
        nbytes = header.payload_nbytes
        inline = nbytes <= self.eager_nbytes
        incoming = self.office.frame(self, header)
        self._incoming, self._filled, self._expected = incoming, 0, nbytes
        if inline:
            self._fill(self._in[start : start + nbytes])
        self._advance(_HEADER_NBYTES + ((nbytes if inline else 0) + 31 & -32))

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

    def _advance(self, nbytes: int) -> None:
        self._tail += nbytes
        self._in_words[_TAIL] = self._tail
        self._tell_of_room()

    def _tell_of_room(self) -> None:
        # What the peer waits for is written before this is read, or it looks again after it has written this.
        futex.fence()
        words = self._in_words
        if words[_WANTS_ROOM] and 2 * (words[_HEAD] - self._tail) <= self._capacity:
            words[_WANTS_ROOM] = 0
            self.sleep.wake()

    # ------------------------------------------------------------------ the end

    def abort(self, header: Header, payload: bytes) -> list[Parcel]:
        """Drop what has not left, and wake the peer, which finds the notice on the board."""
        dropped = self.drop()
        self._rest = self._incoming = None
        self.sleep.wake()
        return dropped

    def drop(self) -> list[Parcel]:
        """Forget the requests that use this pipe, and return them."""
        frames = [*self._queue, *([self._rest] if self._rest else [])]
        dropped = [frame.request for frame in frames if frame.request is not None]
        if self._incoming is not None and self._incoming.request is not None:
            dropped.append(self._incoming.request)
        self._queue.clear()
        return dropped

    def close(self) -> None:
        """Let the memory go."""
        if not self.closed:
            self.closed = True
            for view in (self._out, self._in, self._out_words, self._in_words):
                view.release()
            self.sleep.close()


def _message(tag: int) -> int:
    """Return the first word of a message."""
    return Kind.MESSAGE | tag << 32
