"""Both ends of the rings of shared memory in one process, step by step, where each step is decided by the test."""

from __future__ import annotations

import os
import resource
import sys
from collections import deque
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankwise.basics import native
from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.protocol.frames import Header, Kind, message_head
from rankwise_gloo_tcp.protocol.message import Destination
from rankwise_gloo_tcp.transport.pipe import Pipe
from rankwise_gloo_tcp.transport.rings import Bell, Place, PythonRings, Sleep, message, ring_nbytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared memory needs Linux")

_SIZE = 64  # the smallest rings
_PATTERN = memoryview((np.arange(1 << 20) % 251).astype(np.uint8).tobytes())


class _Handler:
    """Takes down what comes."""

    def __init__(self) -> None:
        self.got: deque[tuple[Header, bytearray]] = deque()
        self.error: ProtocolError | None = None

    def frame(self, pipe: Pipe, header: Header) -> Destination:
        data = bytearray(header.payload_nbytes)
        return Destination(memoryview(data), lambda: self.got.append((header, data)))

    def garbled(self, pipe: Pipe, error: ProtocolError) -> None:
        self.error = error

    def held_up(self) -> None:
        """The tests say when to go on."""


class _Two:
    """Two ranks, of which the first writes and the second reads; each with rings in Python, or compiled ones."""

    def __init__(self, kinds: tuple[str, str]) -> None:
        nbytes = ring_nbytes(_SIZE)
        memory = memoryview(bytearray(2 * nbytes + 32))
        self.asleep = memory[2 * nbytes :].cast("Q")
        self.ends = os.pipe2(os.O_NONBLOCK)
        self.bell = self.ends[0]
        bell = Bell.of(os.getpid(), self.ends[1], os.fstat(self.ends[1]).st_ino)
        self.handlers = _Handler(), _Handler()
        places = Place(0, nbytes, nbytes, 2 * nbytes + 16), Place(nbytes, 0, nbytes, 2 * nbytes)
        handler: Any = self.handlers
        self.writer = Pipe(handler[0], 1, _KINDS[kinds[0]](memory, places[0], bell))
        self.reader = Pipe(handler[1], 0, _KINDS[kinds[1]](memory, places[1], bell))
        self.capacity = self.writer.rings.capacity

    def close(self) -> None:
        self.writer.close()
        self.reader.close()
        for end in self.ends:
            os.close(end)


_KINDS: dict[str, Any] = {"python": PythonRings}
if native.module() is not None:
    from rankwise_native import Rings as CompiledRings

    _KINDS["native"] = CompiledRings


@pytest.fixture(params=product(_KINDS, repeat=2), ids="-to-".join)
def two(request: pytest.FixtureRequest) -> Iterator[_Two]:
    """Two ends, of each kind."""
    ends = _Two(request.param)
    yield ends
    ends.close()


def _send(pipe: Pipe, tag: int, data: memoryview) -> None:
    kind = Kind.MESSAGE if len(data) <= pipe.eager_nbytes else Kind.PAYLOAD
    pipe.send(Header(kind, 0, tag, len(data)), data)


def _expect(two: _Two, tag: int, data: memoryview) -> None:
    header, got = two.handlers[1].got.popleft()
    assert (header.tag, header.length) == (tag, len(data))
    assert got == data


def _fill(two: _Two) -> None:
    """Have the ring full a few times, after which compiled code uses all of it."""
    _send(two.writer, 0, _PATTERN[: 4 * two.capacity])
    while not two.writer.idle or two.reader.has_news():
        two.reader.receive()
        two.writer.flush()
    _expect(two, 0, _PATTERN[: 4 * two.capacity])


def test_messages_of_all_sizes_pass_the_end_of_the_ring_at_all_places(two: _Two) -> None:
    eager = two.writer.eager_nbytes
    _fill(two)
    for start in range(0, eager + 128, 32 * 73):
        for nbytes in (0, 1, 31, 32, 33, eager - 1, eager, eager + 1):
            # Move to a place so far before the end.
            while (gap := (two.capacity - start - two.writer.rings.head) % two.capacity) > 0:
                filler = _PATTERN[: min(gap, eager) - 32 if gap > 32 else 0]
                _send(two.writer, 1, filler)
                two.reader.receive()
                _expect(two, 1, filler)
            _send(two.writer, 2, _PATTERN[3 : 3 + nbytes])
            two.reader.receive()
            _expect(two, 2, _PATTERN[3 : 3 + nbytes])
    assert two.writer.idle


def test_small_messages_stay_in_the_first_pages_as_long_as_they_are_read(two: _Two) -> None:
    if isinstance(two.writer.rings, PythonRings):
        pytest.skip("the rings in Python always use all of their memory")
    for index in range(2 * two.capacity // 128):
        _send(two.writer, index, _PATTERN[:90])
        two.reader.receive()
        _expect(two, index, _PATTERN[:90])
        assert two.writer.rings.head % two.capacity <= (32 << 10) + 128


def test_many_small_messages_soon_have_all_of_the_ring(two: _Two) -> None:
    for _ in range(4):
        sent = 0
        while two.writer.rings.write(message(3), 90, 0, 0, _PATTERN[:90]):
            sent += 1
        assert sent * 128 >= (16 << 10)
        for _ in range(sent):
            two.reader.receive()
        while two.handlers[1].got:
            _expect(two, 3, _PATTERN[:90])
    assert sent * 128 >= two.capacity * 7 // 8  # the reader tells of most of what it has read


@pytest.mark.parametrize("seed", range(3))
def test_what_is_sent_comes_in_order_however_the_ends_take_turns(two: _Two, seed: int) -> None:
    rng = np.random.default_rng(seed)
    eager, piece = two.writer.eager_nbytes, two.writer._piece_nbytes
    edges = [0, 1, 32, eager - 1, eager, eager + 1, piece - 1, piece, piece + 1, 2 * piece, two.capacity + 5]
    sent: deque[tuple[int, memoryview]] = deque()
    for index in range(500):
        if rng.random() < 0.6:
            nbytes = int(rng.choice(edges) if rng.random() < 0.4 else rng.integers(0, 2000))
            data = _PATTERN[index % 251 :][:nbytes]
            # At once, or behind what waits.
            if not two.writer.post(message_head(index, len(data), 0), data):
                _send(two.writer, index, data)
            sent.append((index, data))
        elif rng.random() < 0.5:
            two.reader.receive()
        else:
            two.writer.flush()
        while two.handlers[1].got:
            _expect(two, *sent.popleft())
    while not two.writer.idle or two.reader.has_news():
        two.writer.flush()
        two.reader.receive()
    while sent:
        _expect(two, *sent.popleft())
    assert not two.handlers[1].got
    assert two.writer.idle


def test_a_message_is_taken_only_if_it_is_the_next_and_fits(two: _Two) -> None:
    room = memoryview(bytearray(100))
    assert two.writer.post(message_head(5, 100, 77), _PATTERN[:100])
    assert two.reader.take(message_head(6, 100, 77), room) == -1
    assert two.reader.take(message_head(5, 100, 77), room[:99]) == -1
    assert two.reader.take(message_head(5, 100, 78), room) == -1
    assert two.reader.take(message_head(5, 100, 77), room) == 100
    assert room == _PATTERN[:100]
    assert not two.reader.has_news()
    assert two.writer.post(message_head(5, 100, 77), _PATTERN[100:200])
    assert two.reader.take(message_head(5, 100, 0), room) == 100
    assert room == _PATTERN[100:200]


@pytest.mark.parametrize("seed", range(5))
def test_whoever_waits_for_room_hears_of_it_once_everything_is_read(two: _Two, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(30):
        while two.writer.idle:
            _send(two.writer, 0, _PATTERN[: int(rng.choice([0, 100, 5000, two.writer.eager_nbytes, two.capacity]))])
        while not two.writer.idle:
            two.reader.receive()
            assert two.writer.has_room()
            two.writer.flush()
        two.reader.receive()


@pytest.fixture
def peers() -> Iterator[Any]:
    """The peers of an engine that has no pipes yet."""
    engine = Engine(EngineConfig(0, [], b"", False, (0, 1), 10.0, lambda error: None, False))
    yield engine.peers
    engine.peers.pipes = []
    engine.close()


@pytest.mark.parametrize("asleep", [False, True])
def test_room_is_noticed_whether_it_comes_before_the_sleep_or_after(two: _Two, peers: Any, asleep: bool) -> None:
    peers.pipes, peers._sleep = [two.writer], Sleep(two.asleep, 0)
    _send(two.writer, 0, _PATTERN[: 2 * two.capacity])
    if asleep:
        assert peers.before_sleep(10.0) == 10.0
        two.reader.receive()
        assert os.read(two.bell, 10) == b"b"
    else:
        two.reader.receive()
        assert peers.before_sleep(10.0) == 0.0


def test_a_receive_from_anyone_has_news_only_if_something_has_come(two: _Two, peers: Any) -> None:
    peers.pipes = [two.reader]
    anyone: Any = type("Request", (), {"peer": None, "done": False})
    assert not peers.may_have_news(anyone)
    _send(two.writer, 0, _PATTERN[:1])
    assert peers.may_have_news(anyone)


@pytest.mark.parametrize("what", ["a frame of no kind", "a payload that is longer than it was said to be"])
def test_what_makes_no_sense_ends_the_pipe_and_raises_nothing(two: _Two, what: str) -> None:
    if what == "a frame of no kind":
        two.writer.rings.write(Kind.LEAVING + 5, 0, 0, 0, _PATTERN[:0])
    else:
        two.writer.rings.write(Kind.PAYLOAD, two.writer.eager_nbytes + 1, 0, 0, _PATTERN[:0])
        for _ in range(2):
            two.writer.rings.write(255, two.writer._piece_nbytes, 0, 0, _PATTERN[: two.writer._piece_nbytes])
    two.reader.receive()
    assert isinstance(two.handlers[1].error, ProtocolError)
    assert two.reader.closed


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_bell_takes_a_descriptor_from_the_first_time_it_is_rung_until_the_end(two: _Two) -> None:
    before = _descriptors()
    _send(two.writer, 0, _PATTERN[:1])
    assert _descriptors() == before  # the reader was awake
    for _ in range(2):
        two.asleep[2] = 1
        _send(two.writer, 0, _PATTERN[:1])
        assert two.asleep[2] == 0
        assert os.read(two.bell, 10) == b"b"
        assert _descriptors() == before + 1
    two.writer.close()
    assert _descriptors() == before


@pytest.mark.parametrize("kind", ["file", "pipe", "none"])
def test_a_file_that_has_come_into_the_place_of_a_bell_is_not_written_to(two: _Two, kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"whole")
    place = two.ends[1]
    if kind == "none":
        os.close(place)
    else:
        other = os.pipe2(os.O_NONBLOCK) if kind == "pipe" else (os.open(tmp_path / "file", os.O_RDWR),)
        os.dup2(other[-1], place)
    before = _descriptors()
    two.asleep[2] = 1
    _send(two.writer, 0, _PATTERN[:1])
    assert _descriptors() == before
    assert two.asleep[2] == 1  # whoever writes next tries again
    if kind == "none":
        os.dup2(two.bell, place)
        return
    if kind == "pipe":
        with pytest.raises(BlockingIOError):
            os.read(other[0], 1)
    assert (tmp_path / "file").read_bytes() == b"whole"
    for descriptor in other:
        os.close(descriptor)


def test_without_a_free_descriptor_nobody_is_woken_and_nothing_breaks(two: _Two) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    two.asleep[2] = 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        _send(two.writer, 0, _PATTERN[:1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert two.asleep[2] == 1
    assert two.reader.has_news()
    _send(two.writer, 0, _PATTERN[:1])
    assert os.read(two.bell, 10) == b"b"
