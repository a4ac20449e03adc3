"""The messages between a `TCPStore` and its server: what they look like, and the check of all that comes in.

A request is `[number, operation, how long to wait, arguments]`, a reply `[number, status, value, receipt]`, both in
msgpack with bounds on everything. Only what has passed the check below reaches the table.

A request travels in pieces, each a message whose first byte says whether more follow. A reply is one message of as many
frames as it takes; the receipt of a large one is sent back once it has been read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rankwise.errors import ProtocolError
from rankwise.stores import MAX_KEY_NBYTES, MAX_KEYS, MAX_VALUE_NBYTES, Missing, Primitives, operations
from rankwise_stores import queues
from rankwise_stores.tcp.wills import set_with_will

MAGIC = "rankwise store"
VERSION = 7

#: `compare_set` carries two values.
MAX_MESSAGE_NBYTES = 2 * MAX_VALUE_NBYTES + (64 << 10)
#: How large a piece or a frame is, for ZeroMQ buffers one even for those who have yet to prove themselves.
FRAME_NBYTES = 64 << 10
#: What ZeroMQ takes: a frame, and what encryption adds to it.
MAX_FRAME_NBYTES = FRAME_NBYTES + 256
_MAX_WAIT_S = 1e10
_MAX_TEXT = 1500

#: The number of a message that is no reply: whether it arrives tells the server whether the client is still there.
PROBE = -(1 << 63)


class Piece:
    """The first byte of what a client sends."""

    LAST, MORE, RECEIPT = b"\0", b"\1", b"\2"


#: Statuses of replies. The value is the result; the key to wait for; what was waited for; or the text of an error.
OK, MISSING, LATE, STORE_ERROR, PROTOCOL_ERROR = range(5)


class StoreRequest(NamedTuple):
    """A request that has passed the check."""

    number: int
    operation: Callable[..., Any]
    #: None to be answered immediately.
    wait_s: float | None
    args: Sequence[Any]


class Packed(NamedTuple):
    """A result that is encoded already, as many get the same; and about how many bytes it takes."""

    data: bytes
    nbytes: int


class Reply(NamedTuple):
    """A reply that has the form of one."""

    number: int
    status: int
    value: Any
    #: What to send back when it has been read; empty if nothing is to be.
    receipt: bytes = b""


def hello(table: Any, version: int) -> list[Any]:
    """Return what a client asks first, so that it knows whom it has reached."""
    return [MAGIC, VERSION, table.identity]


def wait_for_workers(store: Primitives, key: str, count: int) -> int | Missing:
    """Return a counter once it is at `count` or above."""
    value = int(store.peek(key) or b"0")
    return value if value >= count else Missing(key)


operations.LACKING[wait_for_workers] = lambda store, key, count: (
    f"clients: {int(store.peek(key) or b'0')} of {count} have joined"
)


def encode_request(number: int, name: str, wait_s: float | None, args: Sequence[Any]) -> bytes:
    """Encode a request."""
    return _pack([number, name, wait_s, list(args)])


def encode_reply(number: int, status: int, value: Any, receipt: bytes = b"") -> bytes:
    """Encode a reply; a text that is too long is cut."""
    if isinstance(value, str) and status != MISSING:
        value = value[:_MAX_TEXT]
    if isinstance(value, Packed):
        return b"".join((_FOUR_FIELDS, _pack(number), _pack(status), value.data, _pack(receipt)))
    return _pack([number, status, value, receipt])


def packed(value: Any, nbytes: int) -> Packed:
    """Encode a result once for all who get it."""
    return Packed(_pack(value), nbytes)


def to_pieces(data: bytes) -> Sequence[bytes]:
    """Cut an encoded request into the messages that bring it."""
    begins = range(0, max(1, len(data)), FRAME_NBYTES)
    kinds = [Piece.MORE] * (len(begins) - 1) + [Piece.LAST]
    return [kind + data[begin : begin + FRAME_NBYTES] for kind, begin in zip(kinds, begins, strict=True)]


def to_receipt(reply: Reply) -> bytes:
    """Return the message that tells the server that a reply has been read."""
    return Piece.RECEIPT + reply.receipt


def to_frames(data: bytes) -> Sequence[bytes | memoryview]:
    """Cut an encoded reply into frames."""
    if len(data) <= FRAME_NBYTES:
        return (data,)
    view = memoryview(data)
    return [view[begin : begin + FRAME_NBYTES] for begin in range(0, len(view), FRAME_NBYTES)]


def from_frames(frames: Sequence[bytes]) -> bytes:
    """Put an encoded reply together.

    Raises:
        ProtocolError: It is too large.
    """
    if sum(map(len, frames)) > MAX_MESSAGE_NBYTES:
        raise ProtocolError("the message is too large")
    return frames[0] if len(frames) == 1 else b"".join(frames)


def decode_request(data: bytes) -> StoreRequest:
    """Decode and check a request.

    Raises:
        ProtocolError: It is not one.
    """
    fields = _unpack(data, 4, "request")
    number, name, wait_s, args = fields
    if not isinstance(name, str) or name not in _SIGNATURES:
        raise ProtocolError(f"there is no operation {name!r:.80}")
    if not (wait_s is None or (type(wait_s) in (int, float) and 0 <= wait_s <= _MAX_WAIT_S)):
        raise ProtocolError(f"{wait_s!r:.80} is no time to wait")
    operation, kinds, _ = _SIGNATURES[name]
    if not isinstance(args, list) or len(args) != len(kinds) or not all(map(_call, kinds, args)):
        raise ProtocolError(f"these are no arguments of {name}")
    if kinds[:2] == (_keys, _values) and len(args[0]) != len(args[1]):
        raise ProtocolError("as many values as keys are needed")
    return StoreRequest(number, operation, wait_s, args)


def decode_reply(data: bytes) -> Reply:
    """Decode and check a reply; `is_result` checks its value.

    Raises:
        ProtocolError: It is not one.
    """
    number, status, value, receipt = _unpack(data, 4, "reply")
    if type(status) is not int or not OK <= status <= PROTOCOL_ERROR or (status != OK and not isinstance(value, str)):
        raise ProtocolError("the status is none of a reply")
    if not isinstance(receipt, bytes):
        raise ProtocolError("the receipt is none of a reply")
    return Reply(number, status, value, receipt)


def is_result(name: str, value: Any) -> bool:
    """Tell whether a value can be the result of an operation."""
    return _SIGNATURES[name][2](value)


# ---------------------------------------------------------------------- msgpack, with bounds


#: What an array of four begins with.
_FOUR_FIELDS = b"\x94"


def _pack(value: Any) -> bytes:
    import msgpack

    data: bytes = msgpack.packb(value)
    return data


def _unpack(data: bytes, count: int, what: str) -> list[Any]:
    import msgpack

    try:
        fields = msgpack.unpackb(
            data,
            max_str_len=MAX_KEY_NBYTES,
            max_bin_len=MAX_VALUE_NBYTES,
            max_array_len=MAX_KEYS,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"a {what} that cannot be decoded ({type(error).__name__})") from error
    if not isinstance(fields, list) or len(fields) != count or type(fields[0]) is not int:
        raise ProtocolError(f"this is no {what}")
    return fields


# ---------------------------------------------------------------------- what arguments and results may be


def _call(kind: Callable[[Any], bool], value: Any) -> bool:
    return kind(value)


def _key(value: Any) -> bool:
    # Its length in bytes is bounded where it is decoded.
    return isinstance(value, str)


def _value(value: Any) -> bool:
    return isinstance(value, bytes)


def _token(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) == queues.TOKEN_NBYTES and any(value)


def _value_or_none(value: Any) -> bool:
    return value is None or isinstance(value, bytes)


def _number(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _length(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_KEYS


def _boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _nothing(value: Any) -> bool:
    return value is None


def _keys(value: Any) -> bool:
    return isinstance(value, list) and all(map(_key, value))


def _values(value: Any) -> bool:
    return isinstance(value, list) and all(map(_value, value))


def _values_or_none(value: Any) -> bool:
    return isinstance(value, list) and all(map(_value_or_none, value))


def _page(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and _keys(value[0]) and _boolean(value[1])


def _greeting(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and value[0] == MAGIC and isinstance(value[2], bytes)


_Kind = Callable[[Any], bool]
_op = operations

#: Each operation, the kinds of its arguments, and the kind of its result.
_SIGNATURES: dict[str, tuple[Callable[..., Any], tuple[_Kind, ...], _Kind]] = {
    operation.__name__: (operation, kinds, result)
    for operation, kinds, result in (
        (hello, (_number,), _greeting),
        (_op.peek, (_key,), _value_or_none),
        (_op.swap, (_key, _value_or_none, _value_or_none), _value_or_none),
        (_op.set_, (_key, _value), _nothing),
        (set_with_will, (_key, _value, _value), _nothing),
        (_op.add, (_key, _number), _number),
        (_op.append, (_key, _value), _nothing),
        (_op.compare_set, (_key, _value, _value), _value),
        (_op.delete_key, (_key,), _boolean),
        (_op.delete_prefix, (_key,), _number),
        (_op.check, (_keys,), _boolean),
        (_op.multi_set, (_keys, _values), _nothing),
        (_op.set_and_peek, (_keys, _values, _keys), _values_or_none),
        (_op.claim, (_keys, _values), _values),
        (_op.arrive, (_keys, _values, _key, _number, _key, _keys, _key, _length), _values_or_none),
        (_op.num_keys, (), _number),
        (_op.num_refused, (), _number),
        (_op.list_keys, (_key,), _page),
        (queues.queue_push, (_key, _value), _nothing),
        (queues.queue_len, (_key,), _number),
        (_op.get, (_key,), _value),
        (_op.wait, (_keys,), _boolean),
        (_op.multi_get, (_keys,), _values),
        (queues.queue_pop, (_key, _token), _value),
        (queues.queue_confirm, (_key, _token), _boolean),
        (queues.queue_release, (_key, _token, _value_or_none), _nothing),
        (queues.barrier, (_key, _number), _boolean),
        (wait_for_workers, (_key, _number), _number),
    )
}
