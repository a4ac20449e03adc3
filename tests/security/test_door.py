"""Who stands at the door of a rank: nobody without the group's key gets in, and a rank that belongs there still does.

The engine of rank 0 of 3 is the real one, with a real port; its loop is driven by a thread of the test. It has not
failed, has let nobody in, and lets rank 1 in afterwards, whatever was tried.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from time import monotonic

import pytest

pytest.importorskip("rankwise_gloo_tcp")

from rankwise_gloo_tcp.engine import acceptor
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.protocol import frames, handshake
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.transport import connecting
from rankwise_network import doors

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
PATIENCE_S = 10.0
HELLO = struct.Struct("<4sIII16s")


def card(port: int) -> Card:
    known = {"uid": 0, "pid": 0, "address": "127.0.0.1", "port": port, "integrity": "header", "cores": ("1", 1.0)}
    return Card(**{name: known.get(name, "") for name in Card._fields})


class House:
    """Rank 0, at its port; and rank 1, once it is asked to come."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.where = listener.getsockname()
        self.cards = [card(self.where[1])] * 3
        self.failures: list[BaseException] = []
        self.engines = [self.engine(0)]
        self.rank0.listen(listener, near=False)
        self._open = True
        self._driver = threading.Thread(target=self._drive)
        self._driver.start()

    def engine(self, rank: int) -> Engine:
        return Engine(EngineConfig(rank, self.cards, KEY, True, (0, 1, 2), 5.0, self.failures.append, False))

    @property
    def rank0(self) -> Engine:
        return self.engines[0]

    def _drive(self) -> None:
        while self._open:
            for engine in list(self.engines):
                engine.look()
            os.sched_yield()

    def call(self) -> socket.socket:
        """Come to the door."""
        visitor = socket.create_connection(self.where, timeout=PATIENCE_S)
        visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return visitor

    def until(self, true: Callable[[], bool]) -> bool:
        deadline = monotonic() + PATIENCE_S
        while not true() and monotonic() < deadline:
            os.sched_yield()
        return true()

    def come_as_rank_1(self) -> None:
        """Let the real rank 1 come in, and send something."""
        self.engines.append(self.engine(1))
        room = bytearray(5)
        received = self.rank0.receive_bytes(memoryview(room), 1, 7)
        sent = self.engines[1].send_bytes(memoryview(b"hello"), 0, 7)
        assert self.until(lambda: received.done and sent.done), self.failures
        assert bytes(room) == b"hello"

    def close(self) -> None:
        self._open = False
        self._driver.join()
        for engine in self.engines:
            engine.close()


@pytest.fixture
def house() -> Iterator[House]:
    house = House()
    try:
        yield house
    finally:
        house.close()


def is_shown_out(visitor: socket.socket) -> bool:
    """Tell whether the other end closes the connection, and has said nothing but an answer.

    How much was said tells it, not what: a random answer may end like a welcome.
    """
    nbytes = 0
    try:
        while data := visitor.recv(1000):
            nbytes += len(data)
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return nbytes in (0, handshake.ANSWER_NBYTES)


def read(visitor: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        piece = visitor.recv(nbytes - len(data))
        assert piece, "the door was closed"
        data += piece
    return data


# ---------------------------------------------------------------------- what strangers try

#: What anybody may say first, as it is public.
PUBLIC = HELLO.pack(b"RKW2", 1, 0, 3, bytes(16))


def say(house: House, *words: bytes) -> None:
    """Come with each of some words, and be shown out."""
    for word in words:
        with house.call() as visitor:
            visitor.sendall(word)
            assert is_shown_out(visitor)


def prove(house: House, hello: bytes, proof: Callable[[bytes], bytes]) -> None:
    """Come with a hello, prove something with the answer to it, and be shown out."""
    with house.call() as visitor:
        visitor.sendall(hello)
        visitor.sendall(proof(read(visitor, handshake.ANSWER_NBYTES)))
        assert is_shown_out(visitor)


def garbage(house: House) -> None:
    say(house, os.urandom(32), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(64), b"\xff" * 64, b"\x80\x04\x95" * 20)


def truncated(house: House) -> None:
    for length in (0, 1, 4, 31):
        with house.call() as visitor:
            visitor.sendall(PUBLIC[:length])
            visitor.shutdown(socket.SHUT_WR)
            assert is_shown_out(visitor)


def no_key(house: House) -> None:
    prove(house, PUBLIC, lambda answered: os.urandom(handshake.PROOF_NBYTES))


def another_key(house: House) -> None:
    hello = handshake.Hello.new(1, 0, 3)
    prove(house, hello.pack(), lambda answered: handshake.proof(OTHER_KEY, hello, answered))


def impossible_ranks(house: House) -> None:
    """With the right key, as a rank of this job that has lost its way: the very hello is refused."""
    places = ((0, 0, 3), (3, 0, 3), (1, 2, 3), (1, 0, 4), (2**32 - 1, 0, 3))
    say(house, *(HELLO.pack(b"RKW2", *place, bytes(16)) for place in places))


def another_rank_than_proved(house: House) -> None:
    """A proof made for rank 2 does not open the door to rank 1."""
    one, two = (handshake.Hello(rank, 0, 3, bytes(range(16))) for rank in (1, 2))
    prove(house, one.pack(), lambda answered: handshake.proof(KEY, two, answered))


def replayed(house: House) -> None:
    """What a rank has said at the door of another time is worth nothing now."""
    hello = handshake.Hello.new(1, 0, 3)
    say(house, *[hello.pack() + handshake.proof(KEY, hello, handshake.answer(KEY, hello))] * 3)


def reflected(house: House) -> None:
    """The listener's own proof, sent back to it, is not the dialler's."""
    prove(house, PUBLIC, lambda answered: answered[-handshake.PROOF_NBYTES :])


def asked_elsewhere(house: House) -> None:
    """Two visitors at once: the answer that one gets is no help to the other."""
    hello = handshake.Hello.new(1, 0, 3)
    with house.call() as first, house.call() as second:
        for visitor in (first, second):
            visitor.sendall(hello.pack())
        answers = [read(visitor, handshake.ANSWER_NBYTES) for visitor in (first, second)]
        assert answers[0][:16] != answers[1][:16]
        second.sendall(handshake.proof(KEY, hello, answers[0]))
        assert is_shown_out(second)


def wrong_role(house: House) -> None:
    """Somebody who knows the key but proves to be a listener, or has the key of the connections."""
    hello = handshake.Hello.new(1, 0, 3)
    prove(house, hello.pack(), lambda answered: handshake.answer(KEY, hello)[-handshake.PROOF_NBYTES :])
    prove(house, hello.pack(), lambda answered: handshake.session_keys(KEY, hello, answered)[0])


def frames_at_once(house: House) -> None:
    """An order to give the group up, before anything was proved, and behind a hello."""
    frame = frames.Header(frames.Kind.ABORT, length=2).pack() + b"{}"
    say(house, frame, PUBLIC + frame + bytes(32))


TRIED = [
    *(garbage, truncated, no_key, another_key, impossible_ranks, another_rank_than_proved),
    *(replayed, reflected, asked_elsewhere, wrong_role, frames_at_once),
]


@pytest.mark.parametrize("attempt", TRIED)
def test_nobody_gets_in_and_the_rank_that_belongs_there_does(house: House, attempt: Callable[[House], None]) -> None:
    attempt(house)
    assert house.until(lambda: not house.rank0.peers.acceptor.incoming)
    assert all(peer.connection is None for peer in house.rank0.peers)
    assert house.failures == []
    house.come_as_rank_1()


def test_a_visitor_who_is_slow_is_shown_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "PATIENCE_S", 0.3)
    began = monotonic()
    with house.call() as silent, house.call() as slow:
        slow.sendall(b"R")
        assert is_shown_out(silent)
        assert is_shown_out(slow)
    assert 0.2 < monotonic() - began < PATIENCE_S
    house.come_as_rank_1()


def test_a_rank_that_has_stood_still_itself_calls_nobody_slow(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each of the rounds that a handshake takes, an hour has passed since the one before."""
    hours = 0

    def clock() -> float:
        nonlocal hours
        hours += 1 if house.rank0.peers.acceptor.incoming and hours < doors.ROUNDS - 1 else 0
        return monotonic() + 3600 * hours

    monkeypatch.setattr(acceptor, "monotonic", clock)
    shown_out: list[connecting.Incoming] = []
    monkeypatch.setattr(connecting.Incoming, "close", lambda guest: shown_out.append(guest))
    house.come_as_rank_1()
    assert hours > 0
    assert shown_out == []


def test_visitors_who_say_nothing_are_few_and_take_little(house: House) -> None:
    """Hundreds of half-open connections: those inside are bounded, and the rank comes in between."""
    assert doors.PLACES <= 256
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(3 * doors.PLACES, (soft - 200) // 2)
    with contextlib.ExitStack() as stack:
        for number in range(count):
            visitor = stack.enter_context(house.call())
            if number % 2:
                visitor.sendall(PUBLIC)
            assert len(house.rank0.peers.acceptor.incoming) <= doors.PLACES
        house.come_as_rank_1()
        assert len(house.rank0.peers.acceptor.incoming) <= doors.PLACES
        # Nothing is kept of what they might say but one record of the handshake.
        assert all(len(guest._got) <= handshake.HELLO_NBYTES for guest in list(house.rank0.peers.acceptor.incoming))


def test_a_second_rank_1_does_not_take_the_place_of_the_first(house: House) -> None:
    house.come_as_rank_1()
    before = house.rank0.peers[1].connection
    hello = handshake.Hello.new(1, 0, 3)
    with house.call() as visitor:
        visitor.sendall(hello.pack())
        visitor.sendall(handshake.proof(KEY, hello, read(visitor, handshake.ANSWER_NBYTES)))
        assert read(visitor, 1) == handshake.CROSSED
        assert is_shown_out(visitor)
    assert house.rank0.peers[1].connection is before
    assert house.failures == []


def test_a_rank_that_dials_a_stranger_tells_it_nothing_and_says_so() -> None:
    """Who listens in a rank's place learns a hello, which is public, and no proof that it could use elsewhere."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def pretend() -> None:
            for _ in range(8):
                try:
                    visitor, _ = stranger.accept()
                except OSError:
                    return
                with visitor, contextlib.suppress(ConnectionError):
                    hello = read(visitor, handshake.HELLO_NBYTES)
                    # Its own hello's number for ours, and a tag that it has from nobody.
                    visitor.sendall(hello[-16:] + os.urandom(32))
                    while piece := visitor.recv(1000):
                        heard.extend(piece)

        thread = threading.Thread(target=pretend)
        thread.start()
        failures: list[BaseException] = []
        cards = [card(stranger.getsockname()[1])] * 2
        engine = Engine(EngineConfig(1, cards, KEY, True, (0, 1), 5.0, failures.append, False))
        engine.send_bytes(memoryview(b"secret"), 0, 7)
        deadline = monotonic() + PATIENCE_S
        while not failures and monotonic() < deadline:
            engine.look()
        stranger.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "does not prove that it belongs to this job" in str(failures[0])
    assert not heard
    engine.abort(failures[0])  # type: ignore[arg-type]
    engine.close()
