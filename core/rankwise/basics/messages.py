"""What messages have in common on every backend: the layout of tags, and the errors of those that do not fit.

The lower half of the tags is the user's, the upper half the core's.
"""

from __future__ import annotations

from rankwise.errors import DistBackendError

__all__ = ["COLLECTIVE_TAG", "FINGERPRINT_TAG", "MAX_TAG", "too_long", "wrong_dtype"]

#: The largest tag that users may give.
MAX_TAG = 2**30 - 1

#: The exchange of fingerprints before each derived collective.
FINGERPRINT_TAG = 2**30

#: The data of derived collectives; one tag suffices, as they run one at a time and in one order.
COLLECTIVE_TAG = 2**30 + 1


def too_long(have: int, sender: int, tag: int, room: int) -> DistBackendError:
    """Return the error of a message that is longer than the receive it meets.

    Args:
        have: Bytes of the message.
        sender: The sender's global rank.
        tag: The message's tag.
        room: Bytes of the receive.
    """
    return DistBackendError(f"a message of {have} bytes from rank {sender} (tag {tag}) met a receive of {room} bytes")


def wrong_dtype(have: str, sender: int, tag: int, wanted: str) -> DistBackendError:
    """Return the error of a message of one dtype that meets a receive of another.

    Args:
        have: The message's dtype.
        sender: The sender's global rank.
        tag: The message's tag.
        wanted: The receive's dtype.
    """
    return DistBackendError(
        f"a message of {have} from rank {sender} (tag {tag}) met a receive of {wanted}; "
        "receive into uint8 to take its bytes as they are"
    )
