"""What messages have in common on every backend: the layout of tags, and the errors of those that do not fit.

The lower half of the tags is the user's, the upper half the core's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankwise.errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistTimeoutError,
    GroupAbortedError,
    PeerDiedError,
    PeerUnreachableError,
    ProtocolError,
)

#: The largest tag that users may give.
MAX_TAG = 2**30 - 1

#: The exchange of fingerprints before each derived collective.
FINGERPRINT_TAG = 2**30

#: The data of derived collectives; one tag suffices, as they run one at a time and in one order.
COLLECTIVE_TAG = 2**30 + 1


@dataclass(frozen=True, slots=True)
class Status:
    """A message that has come and was not received.

    Attributes:
        source: The rank that sent it.
        tag: Its tag.
        nbytes: How many bytes it has.
        dtype: The dtype of the array that was sent, where messages tell it.
    """

    source: int
    tag: int
    nbytes: int
    dtype: np.dtype[Any] | None = None

    def count(self, dtype: Any) -> int:
        """Return how many elements of a dtype it has.

        Raises:
            ValueError: It has no whole number of them.
        """
        return items_in(self.nbytes, dtype)


def items_in(nbytes: int, dtype: Any) -> int:
    """Return how many elements of a dtype make so many bytes.

    Raises:
        ValueError: That is no whole number.
    """
    kind = np.dtype(dtype)
    itemsize = int(kind.itemsize)
    if nbytes % itemsize:
        raise ValueError(f"{nbytes} bytes are no whole number of elements of {kind}, which have {itemsize}")
    return nbytes // itemsize


def too_long(have: int, sender: int, tag: int, room: int) -> DistBackendError:
    """Return the error of a message of `have` bytes that meets a receive of `room` bytes, which are fewer."""
    return DistBackendError(f"a message of {have} bytes from rank {sender} (tag {tag}) met a receive of {room} bytes")


def wrong_dtype(have: str, sender: int, tag: int, wanted: str) -> DistBackendError:
    """Return the error of a message of one dtype that meets a receive of another; `sender` is a global rank."""
    return DistBackendError(
        f"a message of {have} from rank {sender} (tag {tag}) met a receive of {wanted}; "
        "receive into uint8 to take its bytes as they are"
    )


# Errors of one rank in a form that travels to the others

_MAX_TEXT = 1500
_KINDS: dict[str, Callable[[str], DistError]] = {
    "late": DistTimeoutError,
    "network": DistNetworkError,
    "protocol": ProtocolError,
    "aborted": GroupAbortedError,
}


def pack_error(error: DistError, rank: int) -> dict[str, Any]:
    """Return an error of global rank `rank` as JSON can hold it."""
    if isinstance(error, PeerDiedError):
        return {"rank": error.rank, "host": error.host[:200], "cause": error.cause[:500], "lost": type(error).__name__}
    for kind, cls in _KINDS.items():
        if type(error) is cls:
            packed = {"kind": kind, "text": str(error)[:_MAX_TEXT]}
            return packed | ({"to": error.rank} if isinstance(error, DistNetworkError) else {})
    return {"kind": "aborted", "text": f"rank {rank} gave the group up: {type(error).__name__}: {error}"[:_MAX_TEXT]}


def unpack_error(content: Any) -> DistError:
    """Return the error that `pack` has packed.

    Raises:
        ProtocolError: It is none.
    """
    try:
        if "rank" in content:
            lost = PeerUnreachableError if content.get("lost") == "PeerUnreachableError" else PeerDiedError
            return lost(int(content["rank"]), str(content["host"]), str(content["cause"]))
        error = _KINDS[content["kind"]](str(content["text"]))
        if isinstance(error, DistNetworkError) and content.get("to") is not None:
            error.rank = int(content["to"])
        return error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ProtocolError("what should tell of another rank's error is malformed") from error
