"""What a rank has sent arrives although its process ends at once: nothing unread there resets the connection."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import monotonic

import pytest

from rankwise.backends import COLLECTIVE_TAG
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.transport.connection import Connection

PATIENCE_S = 20.0
PIECE_NBYTES, PIECES = 512 << 10, 5


class Pair:
    """Two ranks in one process with a TCP connection between them, of which the second dials the first."""

    def __init__(self, stack: ExitStack) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)  # most of what is sent waits at its sender
        known = {"uid": 0, "pid": 0, "address": "127.0.0.1", "port": listener.getsockname()[1], "integrity": "header"}
        card = Card(**{name: known.get(name, "") for name in Card._fields if name != "cores"}, cores=("1", 1.0))
        self.failures: list[BaseException] = []
        self.receiver, self.sender = (
            Engine(EngineConfig(rank, [card] * 2, b"k" * 32, True, (0, 1), 5.0, self.failures.append, False))
            for rank in range(2)
        )
        for engine in (self.receiver, self.sender):
            stack.callback(engine.close)
        self.receiver.listen(listener, near=False)
        self.window = self.sender.dispatcher.outbox.windows[0]
        self.receive(self.send(b"x", 5), 5, 1)

    def send(self, data: bytes, tag: int) -> Request:
        return self.sender.send_bytes(memoryview(data), 0, tag)

    def receive(self, send: Request | None, tag: int, nbytes: int) -> bytes:
        """Receive one message, as it comes; so does the sender go on if it still sends."""
        room = bytearray(nbytes)
        request = self.receiver.receive_bytes(memoryview(room), 1, tag, waited=True)
        self.go_on(lambda: request.done, both=send is not None)
        assert request.error is None
        return bytes(room)

    def go_on(self, done: Callable[[], bool], both: bool = True) -> None:
        deadline = monotonic() + PATIENCE_S
        while not done():
            assert monotonic() < deadline
            assert not self.failures
            self.receiver.look()
            if both:
                self.sender.look()

    @property
    def connection(self) -> Connection:
        """The sender's end."""
        connection = self.sender.peers[0].connection
        assert isinstance(connection, Connection)
        return connection

    def unread(self) -> bool:
        """Tell whether something has come to the sender that it has not read."""
        try:
            return bool(self.connection.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False

    def send_all(self, tag: int) -> list[bytes]:
        """Send so much that credit for it is due, until all of it has left the process."""
        self.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        data = [os.urandom(PIECE_NBYTES) for _ in range(PIECES)]
        sends = [self.send(piece, tag) for piece in data]
        self.go_on(lambda: all(send.done for send in sends))
        return data


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


def test_what_is_on_its_way_survives_the_end_of_its_sender(pair: Pair) -> None:
    data = pair.send_all(COLLECTIVE_TAG)
    taken = [pair.receive(None, COLLECTIVE_TAG, PIECE_NBYTES) for _ in range(PIECES - 1)]
    pair.connection.sock.close()  # as the system does when a process ends
    taken.append(pair.receive(None, COLLECTIVE_TAG, PIECE_NBYTES))
    assert taken == data


def test_credit_for_a_collective_waits_for_a_frame_that_is_read(pair: Pair) -> None:
    data = pair.send_all(COLLECTIVE_TAG)
    assert [pair.receive(None, COLLECTIVE_TAG, PIECE_NBYTES) for _ in data] == data
    assert not pair.unread()
    before = pair.window.unconfirmed
    room = bytearray(1)
    got = pair.sender.receive_bytes(memoryview(room), 0, COLLECTIVE_TAG)
    pair.receiver.send_bytes(memoryview(b"y"), 1, COLLECTIVE_TAG)
    pair.go_on(lambda: got.done)
    assert pair.window.unconfirmed <= before - (2 << 20)


def test_credit_goes_alone_when_a_collective_has_ended(pair: Pair) -> None:
    for piece in (data := pair.send_all(COLLECTIVE_TAG)):
        assert pair.receive(None, COLLECTIVE_TAG, PIECE_NBYTES) == piece
    pair.receiver.end_collective()
    before = pair.window.unconfirmed
    pair.go_on(lambda: pair.window.unconfirmed <= before - (len(data) - 1) * PIECE_NBYTES)


def test_credit_for_messages_goes_at_once(pair: Pair) -> None:
    """A program may count on it: ranks in a ring that all send before they receive need the window."""
    for piece in (data := pair.send_all(5)):
        assert pair.receive(None, 5, PIECE_NBYTES) == piece
    pair.go_on(lambda: pair.window.unconfirmed <= (len(data) - 1) * PIECE_NBYTES)
