"""A third transport: a `Channel` through memory of this process, which delays, splits, holds back and breaks off."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from rankwise_gloo_tcp.protocol.frames import ANY_LENGTH, Header
from rankwise_gloo_tcp.protocol.message import Message
from rankwise_gloo_tcp.protocol.reader import Reader
from rankwise_gloo_tcp.protocol.writer import Writer
from rankwise_gloo_tcp.transport.channel import FrameHandler


class Wire:
    """One direction: bytes that are on their way for a while, in a buffer of some size."""

    def __init__(self, random: Random, clock: Callable[[], int]) -> None:
        self._random, self._clock = random, clock
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._capacity = random.choice([50, 300, 5000])
        #: Whether the sender's end is gone: what is on its way arrives, and then the end.
        self.broken = False

    def write(self, data: bytes | memoryview) -> int:
        """Take some of the bytes; return how many."""
        room = self._capacity - sum(len(piece) for _, piece in self._pieces)
        count = min(len(data), room, self._random.choice([1, 7, 64, self._capacity]))
        if count <= 0 or self.broken:
            return 0
        ready_at = max(self._clock() + self._random.randrange(20), self._pieces[-1][0] if self._pieces else 0)
        self._pieces.append((ready_at, bytes(data[:count])))
        return count

    @property
    def has_room(self) -> bool:
        return sum(len(piece) for _, piece in self._pieces) < self._capacity

    @property
    def has_news(self) -> bool:
        return bool(self._pieces) and self._pieces[0][0] <= self._clock()

    def read(self, room: memoryview) -> int:
        """Bring some of the bytes; return how many."""
        if not self.has_news:
            return 0
        ready_at, piece = self._pieces.popleft()
        count = min(len(piece), len(room))
        room[:count] = piece[:count]
        if count < len(piece):
            self._pieces.appendleft((ready_at, piece[count:]))
        return count

    @property
    def has_ended(self) -> bool:
        return self.broken and not self._pieces


class NoSleep:
    """Where a rank says that it sleeps: it never does, as the test drives it."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def forget(self) -> None: ...


class MemoryChannel:
    """One end; of its `Random` depend its abilities too."""

    way, in_memory, guarded, rings, unconfirmed = "memory", True, False, None, False

    def __init__(self, handler: FrameHandler, peer: int, out: Wire, into: Wire, random: Random) -> None:
        self.handler, self.peer, self.out, self.into = handler, peer, out, into
        self.closed = self.left = self._lost = self._waits = False
        self.ends_with_peer = True
        self.credit_waits = random.random() < 0.5
        self.eager_nbytes = random.choice([64, 512, ANY_LENGTH])
        self.small_nbytes = random.choice([0, 64])
        self.came_nbytes = self._went_nbytes = 0
        self._writer, self._reader = Writer(None), Reader(partial(handler.frame, self), None)

    @property
    def is_halfway(self) -> bool:
        return not self.idle or self._reader.missing_nbytes > 0

    def silent_s(self) -> float:
        return 0.0

    def ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        return ("", 0), ("", 0)

    @property
    def moved_nbytes(self) -> int:
        return self.came_nbytes + self._went_nbytes

    def send(
        self, header: Header, payload: memoryview | None = None, request: Message | None = None, prefix: bytes = b""
    ) -> None:
        self._writer.put(header, payload, request, prefix)
        self.flush()

    def post(self, head: bytes, data: bytes | memoryview) -> bool:
        frame = b"" if self.closed else self._writer.whole(head, data)
        if frame:
            self._writer.left(frame, 0)
            self._put(self._writer.turn()[0])
        return bool(frame)

    def end_with_rest(self, request: Message) -> None:
        self._writer.end_with_rest(request)

    @property
    def idle(self) -> bool:
        return self.closed or self._writer.idle

    def _put(self, data: Any) -> bool:
        sent = self.out.write(data)
        self._went_nbytes += sent
        self._waits = sent < len(data)
        if self._waits:
            self.handler.held_up()
        if sent:
            self._writer.sent(sent)
        return bool(sent)

    def flush(self) -> None:
        while not self.closed and self._writer.next():
            while self._writer.turn() and not len(self._writer.turn()[0]):
                self._writer.sent(0)
            if self._writer.turn() and not self._put(self._writer.turn()[0]):
                break

    def push(self) -> None:
        self._waits = False
        self.flush()

    def has_room(self) -> bool:
        return self._waits and self.out.has_room

    def has_news(self) -> bool:
        return self.into.has_news or (self.into.has_ended and not self._lost)

    def receive(self) -> None:
        while not self.closed and self.into.has_news:
            room = self._reader.room()[0]
            count = self.into.read(memoryview(room))
            self.came_nbytes += count
            self._reader.received(count)
        if self.into.has_ended and not self.closed and not self._lost:
            self._lost = True
            self.handler.lost(self)

    def take(self, head: bytes, room: memoryview) -> int | None:
        nbytes = self._reader.expect(len(room))
        if self.closed or not nbytes:
            return -1
        if not self.into.has_news:
            return None
        count = self.into.read(memoryview(self._reader.inbox)[:nbytes])
        self.came_nbytes += count
        return len(room) if self._reader.expected(count, head, room) else -1

    def abort(self, header: Header, payload: bytes) -> list[Message]:
        dropped = [*self._writer.abort(), *self._reader.drop()]
        self._reader.divert()
        self.send(header, memoryview(payload))
        return dropped

    def drop(self) -> list[Message]:
        return [*self._writer.drop(), *self._reader.drop()]

    def close(self) -> None:
        self.closed = self.out.broken = True

    def after_fork(self) -> None: ...
