"""A writer over each kind of socket: whatever that takes, and whenever it tells, the reader gets frames to the byte."""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_streams import GUARDS, NOTICE, Receiver, Request

from rankwise_gloo_tcp.protocol.frames import Header, Kind, read_notice
from rankwise_gloo_tcp.protocol.guards import Guard
from rankwise_gloo_tcp.protocol.writer import PIECE_NBYTES, Writer
from rankwise_gloo_tcp.transport.connection import Connection

Parts = Sequence[Any]
#: Both sides of what is encrypted at a time, and of what stands in one turn.
LENGTHS = (0, 1, 300, 16 << 10, (16 << 10) + 1, 64 << 10, PIECE_NBYTES - 40, PIECE_NBYTES, PIECE_NBYTES + 1, 700_000)
#: What a caller writes over memory that is its own again; no payload contains it.
OVERWRITTEN = 0xDD


class PlainSocket:
    """Takes as much as the system has room for, which is any number of bytes."""

    def __init__(self, random: Random) -> None:
        self.random, self.went = random, bytearray()

    def sendmsg(self, parts: Parts) -> int:
        return self.take(b"".join(map(bytes, parts)))

    def take(self, data: bytes) -> int:
        """Take some of these bytes."""
        if self.random.random() < 0.3:
            raise BlockingIOError
        count = len(data) if self.random.random() < 0.3 else self.random.randint(1, max(1, len(data)))
        self.went += data[:count]
        return min(count, len(data))


class StandardSocket(PlainSocket):
    """Has encrypted up to 256 KiB of what it was given first, and tells of it when the system has taken all that."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.left, self.stands_for = b"", 0

    def sendmsg(self, parts: Parts) -> int:
        if not self.stands_for:
            self.left = b"".join(map(bytes, parts))[: 256 << 10]
            self.stands_for = len(self.left)
        while self.left:
            self.left = self.left[self.take(self.left) :]
        count, self.stands_for = self.stands_for, 0
        return count


class CompiledSocket(PlainSocket):
    """Has encrypted one record of up to 16 KiB that the system has not taken whole, and counts it as sent later."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.held, self.ahead = b"", 0

    def sendmsg(self, parts: Parts) -> int:
        data = b"".join(map(bytes, parts))
        if self.held:
            self.take_all(self.held)
            self.ahead, self.held = self.ahead + len(self.held), b""
        done = min(self.ahead, len(data))
        self.ahead -= done
        while done < len(data):
            record = data[done : done + (16 << 10)]
            try:
                self.take_all(record)
            except BlockingIOError:
                self.held = record
                if done:
                    break
                raise
            done += len(record)
        return done

    def take_all(self, record: bytes) -> None:
        """Take a whole record, or nothing of it."""
        if self.random.random() < 0.2:
            raise BlockingIOError
        self.went += record


SOCKETS: list[type[PlainSocket]] = [PlainSocket, StandardSocket, CompiledSocket]


def push(writer: Writer, sock: PlainSocket, turns: int) -> None:
    """Send for so many turns at the most, as a connection does."""
    while turns and writer.next():
        turns -= 1
        try:
            sent = sock.sendmsg(writer.turn())
        except BlockingIOError:
            continue
        writer.sent(sent)


def payload_of(random: Random) -> bytearray:
    first, length = random.randrange(OVERWRITTEN), random.choice(LENGTHS)
    return bytearray((bytes(range(OVERWRITTEN)) * (length // OVERWRITTEN + 2))[first : first + length])


@pytest.mark.parametrize("kind", SOCKETS)
@pytest.mark.parametrize("guards", GUARDS)
def test_frames_are_exact_to_the_byte_whatever_a_socket_takes_and_wherever_a_group_is_given_up(
    kind: type[PlainSocket], guards: str
) -> None:
    for seed in range(60):
        random = Random(seed)
        writer, sock, receiver = Writer(GUARDS[guards]), kind(random), Receiver(GUARDS[guards], [])
        payloads = [payload_of(random) for _ in range(random.randint(1, 3))]
        kept = [bytes(payload) for payload in payloads]
        requests = [Request(memoryview(payload)) for payload in payloads]
        for tag, request in enumerate(requests):
            writer.put(Header(Kind.MESSAGE, 0, tag, len(request.buffer)), request.buffer, request, b"")
        push(writer, sock, random.choice([0, 1, 2, 3, 5, 9, 20]))
        done = [request.done for request in requests]
        dropped = writer.abort()
        assert set(dropped) == {request for request in requests if not request.done}
        for payload in payloads:
            payload[:] = bytes([OVERWRITTEN]) * len(payload)
        writer.put(Header(Kind.ABORT, length=len(NOTICE)), memoryview(NOTICE), None, b"")
        push(writer, sock, 100_000)
        assert writer.idle
        receiver.take(bytes(sock.went))
        assert receiver.reader.whole is None
        assert receiver.reader.start == receiver.reader.end
        *begun, last = zip(receiver.headers, receiver.rooms, strict=True)
        assert (last[0].kind, str(read_notice(bytes(last[1] or b"")))) == (Kind.ABORT, "on purpose")
        doomed = receiver.reader.drop()
        for index, (header, room) in enumerate(begun):
            assert (header.tag, header.length) == (index, len(kept[index]))
            assert OVERWRITTEN not in (room or b"")
            assert receiver.requests[index] in doomed or room == kept[index]
        assert sum(done) <= len(begun)


class Counted:
    """A seal that counts what it takes in."""

    def __init__(self, hashed: list[int]) -> None:
        self.hashed, self._seal = hashed, hashlib.blake2b(digest_size=16)

    def update(self, data: Any) -> None:
        self.hashed[-1] += len(data)
        self._seal.update(data)

    def digest(self) -> bytes:
        return self._seal.digest()


class Loop:
    """What a connection asks of a loop, and of what handles its frames."""

    moved_nbytes, looking = 0, False

    def watch(self, sock: object, mask: int, handler: Any) -> None:
        """Nothing polls here."""

    def frame(self, connection: Connection, header: Header) -> Any:
        """Nothing comes."""

    def held_up(self) -> None:
        """Nothing waits here."""


class Sink:
    """A socket whose room has no end."""

    family = socket.AF_INET

    def fileno(self) -> int:
        return -1

    def sendmsg(self, parts: Parts) -> int:
        return sum(map(len, parts))

    def setsockopt(self, *option: int) -> None:
        """Nothing comes late here."""

    def close(self) -> None:
        """Nothing is held here."""


def test_no_step_of_a_connection_seals_more_than_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's lock is held for a step, and may change hands before the next."""
    hashed = [0]
    monkeypatch.setattr(Guard, "seal", lambda self: Counted(hashed))
    loop, sink, long = Loop(), Sink(), memoryview(bytearray(64 * PIECE_NBYTES))
    connection = Connection(loop, loop, 1, sink, GUARDS["full"])  # type: ignore[arg-type]
    connection.send(Header(Kind.PAYLOAD, length=len(long), ident=1), long)
    for _ in range(31):
        hashed.append(0)
        connection.flush()
    assert len(long) // 4 < sum(hashed) < len(long)
    hashed.append(0)
    connection.abort(Header(Kind.ABORT, length=len(NOTICE)), NOTICE)
    connection.close()
    assert max(hashed) <= PIECE_NBYTES
