"""Requests that come in pieces, put together within bounds.

Each piece is a message of its own. As frames of one message they would all lie in ZeroMQ's memory, however many a
client chose to send, before any of them could be looked at.
"""

from __future__ import annotations

from rankwise.errors import ProtocolError
from rankwise.store.tcp import wire

__all__ = ["Assembly"]

_MAX_TOTAL_NBYTES = 256 << 20


class _Begun:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.nbytes = 0


class Assembly:
    """What clients have begun to send."""

    def __init__(self) -> None:
        #: Whoever has sent a piece last stands last.
        self._begun: dict[bytes, _Begun] = {}
        self._nbytes = 0

    def add(self, client: bytes, data: bytes, more: bool) -> bytes | None:
        """Take a piece of a request, and return the request if it is the last one.

        Raises:
            ProtocolError: The request is too large; what has come of it is forgotten.
        """
        begun = self._begun.pop(client, None)
        if begun is None:
            if not more:
                return data
            begun = _Begun()
        self._nbytes += len(data)
        begun.nbytes += len(data)
        begun.pieces.append(data)
        if not more or begun.nbytes > wire.MAX_MESSAGE_NBYTES:
            self._nbytes -= begun.nbytes
            if begun.nbytes > wire.MAX_MESSAGE_NBYTES:
                raise ProtocolError("the message is too large")
            return b"".join(begun.pieces)
        self._begun[client] = begun
        while self._nbytes > _MAX_TOTAL_NBYTES:
            # Whose last piece came longest ago has perhaps gone; if not, it hears that what follows is no request.
            self._nbytes -= self._begun.pop(next(iter(self._begun))).nbytes
        return None
