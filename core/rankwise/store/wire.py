"""The messages between the clients of a `TCPStore` and its server, and the keys that guard them.

A request is [number, operation, arguments, seconds to wait], an answer [number, status, result], in msgpack. With a
job secret all of it goes through CURVE. The server's key pair is derived from the secret, and its public key is never
sent: a client that does not know it cannot even say hello, so knowing it is the proof of belonging to the job.
"""

from __future__ import annotations

from typing import Any

from rankwise import secret
from rankwise.errors import DistStoreError, ProtocolError, QueueEmptyError
from rankwise.store.table import MAX_KEY, MAX_VALUE

__all__ = [
    "MAX_MESSAGE",
    "MAX_WAIT_S",
    "client_security",
    "pack",
    "read_answer",
    "read_request",
    "result",
    "server_security",
    "status_of",
]

MAX_MESSAGE = MAX_VALUE + (64 << 10)
MAX_WAIT_S = 1e7

_MAX_KEYS = 1 << 16
_ERRORS = {"store": DistStoreError, "empty": QueueEmptyError, "protocol": ProtocolError}
#: What each operation takes: k a key, K a list of keys, v a value, V a list of values, n a number.
_TAKES = {
    "set": "kv",
    "get": "k",
    "add": "kn",
    "compare_set": "kvv",
    "append": "kv",
    "delete_key": "k",
    "check": "K",
    "wait": "K",
    "multi_get": "K",
    "multi_set": "KV",
    "list_keys": "k",
    "queue_push": "kv",
    "queue_pop": "k",
    "queue_try_pop": "k",
    "queue_len": "k",
}


def pack(*fields: Any) -> bytes:
    """Encode a message."""
    import msgpack

    packed: bytes = msgpack.packb(fields, use_bin_type=True)
    return packed


def read_request(data: bytes) -> tuple[int, str, list[Any], float]:
    """Decode and check a request; nothing of it is believed before.

    Raises:
        ProtocolError: It is not a request.
    """
    fields = _unpack(data)
    if len(fields) != 4:
        raise ProtocolError("a request has four fields")
    number, op, args, wait_s = fields
    if type(number) is not int or not isinstance(op, str) or op not in _TAKES or not isinstance(args, list):
        raise ProtocolError("a request names an operation and its arguments")
    if not isinstance(wait_s, (int, float)) or not 0 <= wait_s <= MAX_WAIT_S:
        raise ProtocolError("a request waits for a time")
    if len(args) != len(_TAKES[op]) or not all(map(_is, _TAKES[op], args)):
        raise ProtocolError(f"{op} does not take such arguments")
    if op == "multi_set" and len(args[0]) != len(args[1]):
        raise ProtocolError("multi_set takes as many values as keys")
    return number, op, args, float(wait_s)


def read_answer(data: bytes) -> tuple[int, str, Any]:
    """Decode an answer.

    Raises:
        ProtocolError: It is not an answer.
    """
    fields = _unpack(data)
    if len(fields) != 3 or type(fields[0]) is not int or not isinstance(fields[1], str):
        raise ProtocolError("an answer has a number and a status")
    return fields[0], fields[1], fields[2]


def result(status: str, value: Any) -> Any:
    """Return what an answer brings, or raise the error that it tells of."""
    if status == "ok":
        return value
    raise _ERRORS.get(status, ProtocolError)(str(value))


def status_of(error: Exception) -> str:
    """Return the status under which an error travels."""
    return "empty" if isinstance(error, QueueEmptyError) else "store"


def server_security(socket: Any) -> bool:
    """Guard a server's socket with the job's secret; tell whether there is one."""
    import zmq

    keys = _server_keys()
    if keys is None:
        return False
    socket.curve_server = True
    socket.curve_publickey, socket.curve_secretkey = keys
    socket.setsockopt(zmq.ZAP_DOMAIN, b"rankwise")
    return True


def client_security(socket: Any) -> bool:
    """Guard a client's socket with the job's secret; tell whether there is one."""
    import zmq

    keys = _server_keys()
    if keys is None:
        return False
    socket.curve_serverkey = keys[0]
    socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    return True


def _server_keys() -> tuple[bytes, bytes] | None:
    import zmq
    from zmq.utils import z85

    job = secret.load()
    if job is None:
        return None
    private = z85.encode(secret.derive(job, "store server"))
    return zmq.curve_public(private), private


def _unpack(data: bytes) -> list[Any]:
    import msgpack

    try:
        fields = msgpack.unpackb(
            data, raw=False, strict_map_key=True, max_array_len=_MAX_KEYS, max_map_len=0, max_ext_len=0
        )
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise ProtocolError(f"a message cannot be decoded: {error}") from error
    if not isinstance(fields, list):
        raise ProtocolError("a message is a list")
    return fields


def _is(kind: str, value: Any) -> bool:
    if kind in "KV":
        return isinstance(value, list) and len(value) <= _MAX_KEYS and all(_is(kind.lower(), v) for v in value)
    if kind == "k":
        # Prefixes of sub-stores come on top of the longest key.
        return isinstance(value, str) and len(value) <= 2 * MAX_KEY
    if kind == "v":
        return isinstance(value, bytes) and len(value) <= MAX_VALUE
    return type(value) is int and -(1 << 62) < value < 1 << 62
