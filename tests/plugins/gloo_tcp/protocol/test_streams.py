"""Frames as bytes on a connection, from a writer to a reader, cut anywhere, given up anywhere, changed anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rankwise.errors import GroupAbortedError, ProtocolError
from rankwise_gloo_tcp.protocol.frames import (
    HEADER_NBYTES,
    TAG_NBYTES,
    Header,
    Kind,
    message_head,
    notice,
    read_notice,
)
from rankwise_gloo_tcp.protocol.guards import SEAL_NBYTES, Guards
from rankwise_gloo_tcp.protocol.message import Destination
from rankwise_gloo_tcp.protocol.reader import Reader
from rankwise_gloo_tcp.protocol.writer import Writer

GUARDS = {"none": None, "headers": Guards(b"k" * 32, b"k" * 32), "full": Guards(b"k" * 32, b"k" * 32, payloads=True)}
#: Both sides of what the reader takes through its inbox, receives in place, and holds at once.
EDGES = [0, 1, 255, 256, 257, 8 << 10, 64 << 10, (64 << 10) - HEADER_NBYTES, 128 << 10]
LENGTHS = st.one_of(
    st.integers(0, 300), st.sampled_from(EDGES).flatmap(lambda edge: st.integers(max(0, edge - 60), edge + 60))
)
steady = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


class Sent(NamedTuple):
    """One frame: its header, and how its payload is divided and where it goes."""

    header: Header
    prefix_nbytes: int
    wanted: bool


@st.composite
def frames(draw: st.DrawFn) -> Sent:
    kind = draw(st.integers(1, 11))
    length = draw(st.integers(0, 1 << 60))
    if kind in (Kind.MESSAGE, Kind.PAYLOAD):
        length = draw(LENGTHS)
    elif kind in (Kind.ABORT, Kind.DTYPE):
        length = draw(st.integers(0, 4000))
    words = [draw(st.integers(0, (1 << 32) - 1)) for _ in range(3)]
    header = Header(kind, draw(st.integers(0, 1)), words[0], length, words[1], words[2], draw(st.integers(0, 1 << 63)))
    prefix_nbytes = draw(st.integers(0, min(60, header.payload_nbytes)))
    return Sent(header, prefix_nbytes, draw(st.booleans()))


class Request:
    """A send or a receive of a test."""

    def __init__(self, buffer: memoryview) -> None:
        self.buffer, self.peer, self.tag, self.dtype, self.nbytes, self.done = buffer, None, 0, 0, 0, False

    def end(self, error: BaseException | None = None, source: int | None = None) -> None:
        self.done = True


class Receiver:
    """Takes the frames of a reader, and keeps what has come."""

    def __init__(self, guards: Guards | None, wanted: list[bool]) -> None:
        self.reader = Reader(self.frame, guards)
        self.headers: list[Header] = []
        self.whole: list[int] = []
        self.rooms: list[bytearray | None] = []
        self.requests: list[Request] = []
        self._wanted = wanted

    def frame(self, header: Header) -> Destination:
        index = len(self.headers)
        self.headers.append(header)
        wanted = self._wanted[index] if index < len(self._wanted) else True
        room = bytearray(b"\xee") * header.payload_nbytes if wanted else None
        self.rooms.append(room)
        target = None if room is None else memoryview(room)
        self.requests.append(Request(memoryview(b"" if room is None else room)))
        return Destination(target, lambda: self.whole.append(index), self.requests[-1])

    def take(self, data: bytes | memoryview) -> None:
        """Take some bytes, as many at a time as there is room for."""
        left = memoryview(data)
        while left:
            count = 0
            for room in self.reader.room():
                piece = left[: len(room)]
                room[: len(piece)] = piece
                left, count = left[len(piece) :], count + len(piece)
            self.reader.received(count)


def contents(sent: Sent, index: int) -> bytes:
    return Random(index).randbytes(sent.header.payload_nbytes)


def put(writer: Writer, sent: list[Sent]) -> list[Request]:
    requests = []
    for index, one in enumerate(sent):
        data, cut = contents(one, index), one.prefix_nbytes
        requests.append(Request(memoryview(bytearray(data[cut:]))))
        payload = requests[-1].buffer if one.header.payload_nbytes else None
        writer.put(one.header, payload, requests[-1], data[:cut])
    return requests


def leave(writer: Writer, most: int) -> bytes:
    """Return the next bytes that leave, at most so many."""
    data = b"".join(bytes(part) for part in writer.turn())[:most]
    writer.sent(len(data))
    return data


def drained(writer: Writer) -> bytes:
    found = bytearray()
    while writer.next():
        found += leave(writer, 1 << 30)
    return bytes(found)


def stream_of(sent: list[Sent], name: str) -> bytes:
    """Return all the bytes of some frames."""
    writer = Writer(GUARDS[name])
    put(writer, sent)
    return drained(writer)


cuts = st.lists(st.one_of(st.integers(1, 80), st.integers(1, 100_000)), min_size=1, max_size=30)


@steady
@given(st.sampled_from(list(GUARDS)), st.lists(frames(), min_size=1, max_size=8), cuts, cuts)
def test_frames_arrive_as_they_were_sent_however_their_bytes_are_cut(
    name: str, sent: list[Sent], out: list[int], into: list[int]
) -> None:
    writer, receiver = Writer(GUARDS[name]), Receiver(GUARDS[name], [one.wanted for one in sent])
    requests = put(writer, sent)
    stream, turn = bytearray(), 0
    while writer.next():
        stream += leave(writer, out[turn % len(out)])
        turn += 1
    assert writer.idle
    assert all(request.done for request in requests)
    at = turn = 0
    while at < len(stream):
        receiver.take(bytes(stream[at : at + into[turn % len(into)]]))
        at, turn = at + into[turn % len(into)], turn + 1
    assert receiver.headers == [one.header for one in sent]
    assert receiver.whole == list(range(len(sent)))
    for index, (one, room) in enumerate(zip(sent, receiver.rooms, strict=True)):
        assert room == (contents(one, index) if one.wanted else None)


@pytest.mark.parametrize("name", list(GUARDS))
@pytest.mark.parametrize("taken", [1 << 30, 1000])
def test_long_payloads_leave_in_turns(name: str, taken: int) -> None:
    """Of each turn the system may take less: then the next one begins there."""
    sent = [Sent(Header(Kind.MESSAGE, 0, 1, nbytes, 0, 5), 0, True) for nbytes in (700_000, 10, 300_000)]
    writer, stream = Writer(GUARDS[name]), b""
    put(writer, sent)
    while writer.next():
        assert sum(map(len, writer.turn())) <= (256 << 10) + 100
        stream += leave(writer, taken)
    assert stream == stream_of(sent, name)


#: Tag, length, what the receiver expects, and whether it is sent at once.
SMALL = st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(0, 2), st.booleans())


@steady
@given(st.sampled_from(list(GUARDS)), st.lists(SMALL, min_size=1, max_size=12), cuts)
def test_small_messages_at_once_and_the_usual_way_are_the_same_bytes(
    name: str, messages: list[tuple[int, int, int, bool]], into: list[int]
) -> None:
    """Either end takes either way for each frame; the receiver expects what comes, or something else, or is late."""
    writer, stream = Writer(GUARDS[name]), bytearray()
    for index, (tag, length, _, whole) in enumerate(messages):
        data = Random(index).randbytes(length)
        if whole:
            stream += writer.whole(message_head(tag, length, 5), data)
        else:
            put_one = Request(memoryview(data))
            writer.put(Header(Kind.MESSAGE, 0, tag, length, 0, 5), put_one.buffer, put_one, b"")
            stream += drained(writer)
        assert writer.idle
    receiver, at, turn, got = Receiver(GUARDS[name], []), 0, 0, []
    while at < len(stream):
        # Those that were taken at once are not among the receiver's frames, but everything comes in its order.
        tag, length, expects, _ = messages[min(len(got) + len(receiver.headers), len(messages) - 1)]
        room = bytearray(length + (expects == 1))
        most = receiver.reader.expect(len(room)) if expects < 2 else 0
        if most:
            count = min(most, into[turn % len(into)], len(stream) - at)
            receiver.reader.inbox[:count] = stream[at : at + count]
            whole_before = len(receiver.headers)
            if receiver.reader.expected(count, message_head(tag, len(room), 5), memoryview(room)):
                assert len(receiver.headers) == whole_before
                got.append((len(got) + len(receiver.headers), bytes(room)))
        else:
            count = min(into[turn % len(into)], len(stream) - at)
            receiver.take(bytes(stream[at : at + count]))
        at, turn = at + count, turn + 1
    rest = iter(zip(receiver.headers, receiver.rooms, strict=True))
    taken = dict(got)
    for index, (tag, length, *_) in enumerate(messages):
        if index in taken:
            assert taken[index] == Random(index).randbytes(length)
        else:
            header, room = next(rest)
            assert (header.tag, header.length, bytes(room or b"")) == (tag, length, Random(index).randbytes(length))
    assert receiver.whole == list(range(len(receiver.headers)))


@pytest.mark.parametrize("name", ["none", "headers"])
def test_a_rest_that_leaves_later_ends_its_request_and_nothing_goes_before_it(name: str) -> None:
    writer, receiver = Writer(GUARDS[name]), Receiver(GUARDS[name], [True, True])
    frame, rest = writer.whole(message_head(3, 50, 0), b"x" * 50), Request(memoryview(b""))
    writer.left(frame, 20)
    writer.end_with_rest(rest)
    put(writer, [Sent(Header(Kind.CREDIT, length=5), 0, True)])
    assert not writer.idle
    assert not rest.done
    receiver.take(frame[:20] + leave(writer, 30))
    assert not rest.done
    receiver.take(drained(writer))
    assert rest.done
    assert [header.kind for header in receiver.headers] == [Kind.MESSAGE, Kind.CREDIT]
    assert receiver.rooms[0] == b"x" * 50


@pytest.mark.parametrize("name", GUARDS)
def test_each_single_place_for_a_cut(name: str) -> None:
    headers = [Header(Kind.MESSAGE, 0, 3, 70), Header(Kind.CREDIT, length=5), Header(Kind.PAYLOAD, 0, 0, 9, 7)]
    sent = [Sent(header, index * 2 % 3, True) for index, header in enumerate(headers)]
    stream = stream_of(sent, name)
    for cut in range(len(stream) + 1):
        receiver = Receiver(GUARDS[name], [True] * 3)
        receiver.take(stream[:cut])
        receiver.take(stream[cut:])
        assert receiver.whole == [0, 1, 2]
        assert [bytes(room or b"") for room in receiver.rooms] == [contents(one, i) for i, one in enumerate(sent)]


NOTICE = notice(GroupAbortedError("on purpose"), 3)


@steady
@example("full", 300_000, 20, 131_080, 100_000, 70_000)
@example("none", 65_536, 0, 0, 0, 1)
@given(
    st.sampled_from(list(GUARDS)),
    st.one_of(LENGTHS, st.integers(0, 300_000)).filter(bool),
    st.integers(0, 40),
    st.integers(0, 310_000),
    st.integers(0, 310_000),
    st.integers(1, 100_000),
)
def test_a_group_given_up_in_the_middle_of_a_message_says_so_and_leaves_memory_alone(
    name: str, length: int, prefix_nbytes: int, before: int, read: int, step: int
) -> None:
    """The sender aborts after `before` bytes; the receiver too, which has read `read` of them."""
    prefix_nbytes = min(prefix_nbytes, length)
    one = Sent(Header(Kind.MESSAGE, 0, 1, length), prefix_nbytes, True)
    writer, receiver = Writer(GUARDS[name]), Receiver(GUARDS[name], [True])
    requests = put(writer, [one, one])
    assert writer.next()
    stream = bytearray(leave(writer, before)) if before else bytearray()
    before, was_done = len(stream), requests[0].done
    dropped = writer.abort()
    assert dropped == [request for request in requests[::-1] if request is requests[1] or not was_done]
    requests[0].buffer[:] = bytes(len(requests[0].buffer))  # the caller's again
    writer.put(Header(Kind.ABORT, length=len(NOTICE)), memoryview(NOTICE), None, b"")
    stream += drained(writer)
    assert writer.idle

    read = min(read, before)
    receiver.take(bytes(stream[:read]))
    before_the_end = [bytes(room or b"") for room in receiver.rooms]
    if read < before:  # this end hears of it in another way, while the message is coming
        ended = receiver.reader.drop()
        assert all(request in receiver.requests for request in ended)
        receiver.reader.divert()
    for at in range(read, len(stream), step):
        receiver.take(bytes(stream[at : at + step]))
    assert receiver.headers[-1].kind == Kind.ABORT
    assert str(read_notice(bytes(receiver.rooms[-1] or b""))) == str(GroupAbortedError("on purpose"))
    assert receiver.whole[-1] == len(receiver.headers) - 1
    if read < before:
        assert [bytes(room or b"") for room in receiver.rooms[: len(before_the_end)]] == before_the_end
    elif 0 in receiver.whole and len(receiver.headers) == 2:
        assert receiver.rooms[0] == contents(one, 0)
    elif len(receiver.headers) == 2:
        assert receiver.reader.drop() == [receiver.requests[0]]


@pytest.mark.parametrize("name", ["headers", "full"])
def test_a_single_changed_bit_is_noticed(name: str) -> None:
    """With headers guarded alone, those of headers and of their tags, and what no verdict can be."""
    headers = [Header(Kind.MESSAGE, 0, 3, 20, 0, 9), Header(Kind.CREDIT, length=5), Header(Kind.PAYLOAD, 0, 0, 9, 7)]
    stream = stream_of([Sent(header, 2 * (header.kind == Kind.MESSAGE), True) for header in headers], name)
    unit, behind = HEADER_NBYTES + TAG_NBYTES, 1 + SEAL_NBYTES * (name == "full")
    assert len(stream) == 3 * unit + 20 + 9 + 2 * behind
    starts = [0, unit + 20 + behind, 2 * unit + 20 + behind]
    guarded = {at + k for at in starts for k in range(unit)} if name == "headers" else set(range(len(stream)))
    for changed in changed_bits(stream, guarded):
        with pytest.raises(ProtocolError):
            Receiver(GUARDS[name], [True] * 3).take(changed)


def changed_bits(stream: bytes, places: Iterable[int]) -> Iterator[bytes]:
    """Yield a stream again and again, each time with one of its bits changed."""
    for at in places:
        for bit in range(8):
            changed = bytearray(stream)
            changed[at] ^= 1 << bit
            yield bytes(changed)


def test_a_changed_bit_of_an_expected_header_or_of_its_tag_is_noticed() -> None:
    frame = Writer(GUARDS["headers"]).whole(message_head(3, 20, 0), bytes(20))
    for changed in changed_bits(frame, range(HEADER_NBYTES + TAG_NBYTES)):
        receiver = Receiver(GUARDS["headers"], [True])
        count = receiver.reader.expect(20)
        assert count == len(frame)
        receiver.reader.inbox[:count] = changed
        with pytest.raises(ProtocolError):
            receiver.reader.expected(count, message_head(3, 20, 0), memoryview(bytearray(20)))


@pytest.mark.parametrize("name", ["headers", "full"])
@pytest.mark.parametrize("change", ["left out", "repeated", "moved"])
def test_frames_that_are_left_out_repeated_or_moved_are_noticed(name: str, change: str) -> None:
    units = []
    writer = Writer(GUARDS[name])
    for tag in range(3):
        put(writer, [Sent(Header(Kind.MESSAGE, 0, tag, 10), 0, True)])
        units.append(drained(writer))
    changed = {"left out": [0, 2], "repeated": [0, 0], "moved": [1, 0]}[change]
    receiver = Receiver(GUARDS[name], [True] * 3)
    with pytest.raises(ProtocolError, match="header was changed"):
        receiver.take(b"".join(units[index] for index in changed))


@pytest.mark.parametrize("verdict", [2, 3, 0x81, 255])
def test_what_follows_a_payload_is_one_of_two_verdicts(verdict: int) -> None:
    stream = stream_of([Sent(Header(Kind.MESSAGE, 0, 0, 10), 0, True)], "none")
    with pytest.raises(ProtocolError, match="makes no sense"):
        Receiver(None, [True]).take(stream[:-1] + bytes([verdict]))
