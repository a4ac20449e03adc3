"""What travels on an established connection: frames of a fixed header and a payload whose length it tells."""

from __future__ import annotations

import json
import struct
from typing import NamedTuple

from rankwise.errors import DistError, GroupAbortedError, ProtocolError
from rankwise.watch.verdict import pack, unpack

__all__ = [
    "COUNTED",
    "HEADER_NBYTES",
    "MAX_NOTICE_NBYTES",
    "READABLE",
    "Header",
    "Kind",
    "notice",
    "parse",
    "read_notice",
]

_HEADER = struct.Struct("<BBHIQQQ")
HEADER_NBYTES = _HEADER.size

#: Longest text of the frame that gives a group up.
MAX_NOTICE_NBYTES = 4000

#: Flag of an offer whose bytes the receiver may read from the sender's memory.
READABLE = 1
#: Flag of a message of the program, which counts until a receive has met it; and of the receipt for several of them.
COUNTED = 2


class Kind:
    """What a frame is."""

    MESSAGE = 1  # a message with its payload
    OFFER = 2  # a message without: the receiver asks for it when it has room
    REQUEST = 3  # ... by this
    PAYLOAD = 4  # ... and gets this
    RECEIPT = 5  # a receive has taken the message, or so many counted ones
    REFUSAL = 6  # a receive has met the message, but is shorter
    ABORT = 7  # the group is given up; the payload says why
    GOODBYE = 8  # the sender has left in good order


_WITH_PAYLOAD = (Kind.MESSAGE, Kind.PAYLOAD, Kind.ABORT)


class Header(NamedTuple):
    """The fields of a frame.

    Attributes:
        kind: One of `Kind`.
        flags: `READABLE` and `COUNTED`.
        tag: The message's tag; for a receipt of counted messages how many they are.
        length: Bytes of the message or the messages; for a refusal the room that the receive has.
        ident: The sender's number for the message.
        address: Where an offered message lies in the sender's memory.
    """

    kind: int
    flags: int = 0
    tag: int = 0
    length: int = 0
    ident: int = 0
    address: int = 0

    def pack(self) -> bytes:
        """Return the bytes of the header."""
        return _HEADER.pack(self.kind, self.flags, 0, self.tag, self.length, self.ident, self.address)

    @property
    def payload_nbytes(self) -> int:
        """How many bytes follow the header."""
        return self.length if self.kind in _WITH_PAYLOAD else 0


def parse(data: bytes | bytearray | memoryview, offset: int = 0) -> Header:
    """Return the header at an offset.

    Raises:
        ProtocolError: No such frame exists.
    """
    kind, flags, zero, tag, length, ident, address = _HEADER.unpack_from(data, offset)
    if not 1 <= kind <= 8 or flags > 3 or zero or (kind == Kind.ABORT and length > MAX_NOTICE_NBYTES):
        raise ProtocolError(f"a frame of kind {kind}, flags {flags} and {length} bytes does not exist")
    return Header(kind, flags, tag, length, ident, address)


def notice(error: DistError, rank: int) -> bytes:
    """Return the payload of the frame by which global rank `rank` gives the group up because of `error`."""
    data = json.dumps(pack(error, rank)).encode()
    if len(data) > MAX_NOTICE_NBYTES:  # each letter of some scripts takes six bytes
        data = json.dumps(pack(GroupAbortedError(f"rank {rank} gave the group up"), rank)).encode()
    return data


def read_notice(payload: bytes) -> DistError:
    """Return the error that a notice tells of.

    Raises:
        ProtocolError: It is no notice.
    """
    try:
        return unpack(json.loads(payload))
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a notice that the group was given up is malformed") from error
