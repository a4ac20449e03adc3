"""Nothing that comes over the wire does any harm: hostile requests and replies, by hypothesis."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankwise.errors import ProtocolError
from rankwise.store.primitives import MAX_KEY_NBYTES
from rankwise_stores import TCPStore
from rankwise_stores.tcp import wire

NAMES = sorted(wire._SIGNATURES)

anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=12,
)
requests = st.builds(
    lambda *fields: msgpack.packb(list(fields)),
    st.integers(0, 9) | anything,
    st.sampled_from(NAMES) | anything,
    st.none() | st.floats(0, 0.001) | anything,
    st.lists(anything, max_size=4) | anything,
)


@pytest.fixture(scope="module")
def store() -> Iterator[TCPStore]:
    with TCPStore("127.0.0.1", is_master=True, timeout=20, secret=None) as master:
        yield master


@given(st.binary(max_size=200) | requests | anything.map(msgpack.packb))
@settings(max_examples=300, deadline=None)
def test_only_a_protocol_error_escapes_from_a_request_or_a_reply(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        number, operation, wait_s, args = wire.decode_request(data)
        assert callable(operation)
        assert wait_s is None or 0 <= wait_s <= 1e10
        assert isinstance(number, int)
        assert len(args) <= 3
    with contextlib.suppress(ProtocolError):
        reply = wire.decode_reply(data)
        for name in NAMES:
            assert wire.is_result(name, reply.value) in (True, False)


@given(requests)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_server_survives_every_request(store: TCPStore, data: bytes) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = 20_000
        dealer.connect(f"tcp://127.0.0.1:{store.port}")
        for request in (data, wire.encode_request(-1, "num_keys", None, [])):
            for piece in wire.to_pieces(request):
                dealer.send(piece)
        while (reply := wire.decode_reply(dealer.recv())).number != -1:
            pass
        assert reply.status == wire.OK


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff",  # an array of four thousand million elements
        b"\x94\x01\xc6\xff\xff\xff\xff",  # so many bytes
        b"\x94\x01\xdb\xff\xff\xff\xff",  # so long a text
        b"\x94\x01\xdf\xff\xff\xff\xff",  # so large a dictionary
        b"\x91" * 100_000,  # so deep
        b"\x94\x01\xa4set_\xc0\x92\xa1k\xc1",  # a byte that means nothing
        msgpack.packb([1, "get", None, ["k" * (MAX_KEY_NBYTES + 1)]]),
        msgpack.packb([1, "get", 1e300, ["k"]]),
        msgpack.packb([1, "get", float("nan"), ["k"]]),
        msgpack.packb([1, "get", -1, ["k"]]),
        msgpack.packb([True, "get", None, ["k"]]),
        msgpack.packb([1, "add", None, ["k", True]]),
        msgpack.packb([1, "multi_set", None, [["a", "b"], [b"x"]]]),
        msgpack.packb([1, "__class__", None, []]),
        msgpack.packb([1, "barrier_wait", None, ["b", 0]]),
        msgpack.packb([1, "get", None, ["k"], "more"]),
        msgpack.packb([1, "get", None, ["k"]]) + b"\x00",
        msgpack.packb([1, "get", None, [msgpack.ExtType(1, b"x")]]),
        b"\x80\x04\x95cposix\nsystem\n",  # a pickle
    ],
)
def test_known_tricks_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_request(data)


def test_a_text_that_is_too_long_for_a_reply_is_cut() -> None:
    reply = wire.decode_reply(wire.encode_reply(1, wire.STORE_ERROR, "☃" * 100_000))
    assert 100 < len(reply.value) < 10_000
