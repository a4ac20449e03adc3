"""Objects as bytes: in a box, whose size both ends know beforehand, and behind it what has no room in one.

So most objects are a single message, and no rank must hear how long one is before it can receive it.
"""

from __future__ import annotations

import pickle as pickle_module
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from rankwise.backends import decode, encode
from rankwise.errors import CodecError
from rankwise_arrays.kinds import Array

_BOX_NBYTES = 1024
#: What it is, a number that goes with it, and how long the object is.
_HEAD = Struct("<qqq")


class Packet(NamedTuple):
    """What one rank says to another: a word, a number and an object."""

    word: int
    number: int
    value: Any


#: A box, and what follows it if it is too small.
Box = tuple[Array, Array | None]


def packed(packet: Packet, pickle: bool) -> Box:
    """Return a packet as bytes.

    Raises:
        TypeError: The object is of a type that does not travel.
    """
    data = pickle_module.dumps(packet.value) if pickle else encode(packet.value)
    head = _HEAD.pack(packet.word, packet.number, len(data))
    if len(head) + len(data) <= _BOX_NBYTES:
        return _as_array((head + data).ljust(_BOX_NBYTES, b"\0")), None
    return _as_array(head.ljust(_BOX_NBYTES, b"\0")), _as_array(data)


def _as_array(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


def empty_box() -> Array:
    """Return a box to receive into."""
    return np.zeros(_BOX_NBYTES, np.uint8)


def rest_of(box: Array) -> Array | None:
    """Return room for what follows a box, if anything does."""
    nbytes = _HEAD.unpack_from(box)[2]
    return np.empty(nbytes, np.uint8) if _HEAD.size + nbytes > _BOX_NBYTES else None


def opened(box: Array, rest: Array | None, pickle: bool) -> Packet:
    """Return what a box, and what has followed it, are about.

    Raises:
        CodecError: The bytes cannot be read.
    """
    word, number, nbytes = _HEAD.unpack_from(box)
    data = memoryview(box)[_HEAD.size : _HEAD.size + nbytes] if rest is None else memoryview(rest)
    try:
        return Packet(word, number, pickle_module.loads(data) if pickle else decode(data))
    except Exception as error:  # of whatever class a pickle is about
        raise CodecError(f"an object that has come cannot be read: {error!r}") from error
