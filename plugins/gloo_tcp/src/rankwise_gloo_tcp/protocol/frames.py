"""What travels on an established connection: frames of a fixed header and a payload whose length the header gives."""

from __future__ import annotations

import json
import struct
from typing import NamedTuple

from rankwise.backends import MAX_TAG
from rankwise.backends import pack_error as pack
from rankwise.backends import unpack_error as unpack
from rankwise.errors import DistError, GroupAbortedError, ProtocolError

_HEADER = struct.Struct("<BBHIQIIQ")
HEADER_NBYTES = _HEADER.size
#: What is behind it on a connection whose frames are guarded.
TAG_NBYTES = 8
#: More than any message has.
ANY_LENGTH = 1 << 62

#: Longest text of the frame that gives a group up, and of others with a text.
MAX_NOTICE_NBYTES = 4000

#: Flag of an offer whose bytes the receiver may read from the sender's memory.
READABLE = 1
#: Flag of a refusal: the receive was of another dtype, or nobody will receive the message. Else it was too long, which
#: is its sender's mistake too.
UNWANTED = 1
#: Flag of a good-bye: the sender's process ends, and has not destroyed the group.
UNFINISHED = 1


class Kind:
    """What a frame is."""

    MESSAGE = 1  # a message with its payload
    OFFER = 2  # a message without: the receiver asks for it when it has room
    REQUEST = 3  # ... by this
    PAYLOAD = 4  # ... and gets this
    RECEIPT = 5  # the receiver has read an offered message from the sender's memory
    REFUSAL = 6  # an offered message does not fit the receive it has met, or nobody will receive it
    ABORT = 7  # the group is given up; the payload says why
    GOODBYE = 8  # the sender has left in good order
    CREDIT = 9  # receives have taken so many bytes of messages that came with their payload
    DTYPE = 10  # the payload is the name of a dtype; its mark stands in the header
    LEAVING = 11  # the sender is about to leave: what it has offered must be fetched now
    LAST_WORDS = 12  # the payload says by which exception the sender's process ends; its good-bye follows


_LAST = Kind.LAST_WORDS
_TEXTS = (Kind.ABORT, Kind.DTYPE, Kind.LAST_WORDS)
_WITH_PAYLOAD = (Kind.MESSAGE, Kind.PAYLOAD, *_TEXTS)


class Header(NamedTuple):
    """The fields of a frame.

    Attributes:
        kind: One of `Kind`.
        flags: `READABLE` of an offer, `UNWANTED` of a refusal, `UNFINISHED` of `GOODBYE`.
        tag: The message's tag.
        length: Bytes of the message, or of the credit; for a refusal the room that the receive has.
        ident: The sender's number for an offered message.
        dtype: The mark of the message's dtype, 0 if it does not matter.
        address: Where an offered message lies in the sender's memory.
    """

    kind: int
    flags: int = 0
    tag: int = 0
    length: int = 0
    ident: int = 0
    dtype: int = 0
    address: int = 0

    def pack(self) -> bytes:
        """Return the bytes of the header."""
        return _HEADER.pack(self.kind, self.flags, 0, self.tag, self.length, self.ident, self.dtype, self.address)

    @property
    def in_step(self) -> bool:
        """Whether the message belongs to a collective."""
        return self.tag > MAX_TAG

    @property
    def payload_nbytes(self) -> int:
        """How many bytes follow the header."""
        return self.length if self.kind in _WITH_PAYLOAD else 0


def parted(process_ends: bool, words: str = "") -> str:
    """Say why a rank that has left comes no more: with the exception that has ended its process, if that is known."""
    if not process_ends:
        return "it has destroyed the group"
    return f"its process ended: {words}" if words else "its process ended without destroying the group"


def message_head(tag: int, nbytes: int, dtype: int) -> bytes:
    """Return the header of a message that comes with its payload, in bytes; small messages compare it as it is."""
    return _HEADER.pack(Kind.MESSAGE, 0, 0, tag, nbytes, 0, dtype, 0)


def parse(data: bytes | bytearray | memoryview, offset: int = 0) -> Header:
    """Return the header at an offset.

    Raises:
        ProtocolError: No such frame exists.
    """
    kind, flags, zero, tag, length, ident, dtype, address = _HEADER.unpack_from(data, offset)
    header = Header(kind, flags, tag, length, ident, dtype, address)
    if zero:
        raise ProtocolError("bytes of a header that must be zero are not")
    check(header)
    return header


def check(header: Header) -> None:
    """Raise `ProtocolError` unless such a frame exists."""
    kind = header.kind
    if not 1 <= kind <= _LAST or header.flags > 1 or (kind in _TEXTS and header.length > MAX_NOTICE_NBYTES):
        raise ProtocolError(f"a frame of kind {kind}, flags {header.flags} and {header.length} bytes does not exist")


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
