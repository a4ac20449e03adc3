"""How much a server has sent that its clients have not read: it would otherwise grow in the server's memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

__all__ = ["MAX_OF_ONE_NBYTES", "Unread", "is_large", "nbytes_of"]

#: Smaller replies need no receipt: ZeroMQ takes only so many of them for one connection.
_LARGE_NBYTES = 4096
MAX_OF_ONE_NBYTES = 32 << 20
_MAX_TOTAL_NBYTES = 256 << 20
_RECEIPT_NBYTES = 8


def is_large(value: Any) -> bool:
    """Tell whether a reply with this value needs a receipt."""
    return nbytes_of(value) > _LARGE_NBYTES


def nbytes_of(value: Any) -> int:
    """Return about how many bytes a result takes."""
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(map(nbytes_of, value)) + 8 * len(value)
    return 8


class Unread:
    """The large replies of which the clients have not confirmed the receipt.

    A receipt is a number that only who has read the reply can know.
    """

    def __init__(self) -> None:
        self._of: dict[bytes, dict[bytes, int]] = {}
        self._nbytes = 0

    def fits_client(self, client: bytes, nbytes: int) -> bool:
        """Tell whether a client may be sent so many more bytes."""
        unread = sum(self._of.get(client, {}).values())
        return not unread or unread + nbytes <= MAX_OF_ONE_NBYTES

    def fits_all(self, nbytes: int) -> bool:
        """Tell whether there is room for so many more bytes, for any client."""
        return not self._nbytes or self._nbytes + nbytes <= _MAX_TOTAL_NBYTES

    def add(self, client: bytes, nbytes: int) -> bytes:
        """Note a reply, and return the receipt to send with it."""
        receipt = os.urandom(_RECEIPT_NBYTES)
        self._of.setdefault(client, {})[receipt] = nbytes
        self._nbytes += nbytes
        return receipt

    def confirm(self, client: bytes, receipt: bytes) -> bool:
        """Forget what a client has read: the reply with this receipt; tell whether there was one."""
        unread = self._of.get(client)
        if unread is None or receipt not in unread:
            return False
        self._nbytes -= unread.pop(receipt)
        if not unread:
            del self._of[client]
        return True

    def forget(self, client: bytes) -> None:
        """Forget a client that is gone; ZeroMQ has dropped what it was to get."""
        self._nbytes -= sum(self._of.pop(client, {}).values())

    def clients(self) -> Sequence[bytes]:
        """Return those that have something to read."""
        return list(self._of)
