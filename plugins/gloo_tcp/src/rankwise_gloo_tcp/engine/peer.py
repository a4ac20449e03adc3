"""What an engine knows about one other rank."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from rankwise.errors import PeerDiedError, ProtocolError
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.frames import Header
from rankwise_gloo_tcp.setup.cards import Card
from rankwise_gloo_tcp.transport.connection import Connection
from rankwise_gloo_tcp.transport.pipe import Pipe

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.knocking import Dial

__all__ = ["EAGER_NBYTES", "Peer"]

#: How much may be under way to one peer before it has met a receive: so much does the peer hold at the most.
_MAX_MESSAGES = 1024
_MAX_NBYTES = 4 << 20
#: Over sockets messages of the program up to here travel at once; longer ones when the receive is there.
EAGER_NBYTES = _MAX_NBYTES


class Peer:
    """One rank as another sees it.

    Attributes:
        near: Whether a Unix socket leads there.
        readable: Whether its memory may be read.
        gone: Why nothing can be sent there any more.
        frames: What is to be sent once there is a connection.
        backlog: Sends that wait until the peer has taken earlier ones.
    """

    def __init__(self, rank: int, card: Card, near: bool) -> None:
        self.rank, self.card, self.near = rank, card, near
        self.readable = False
        self.gone: PeerDiedError | None = None
        self.connection: Connection | Pipe | None = None
        self.dial: Dial | None = None
        self.failures = 0
        self.frames: list[tuple[Header, memoryview | None, Request | None, bytes]] = []
        self.backlog: deque[Request] = deque()
        self._messages = self._nbytes = 0
        self._taken = self._taken_nbytes = 0

    def is_full(self, nbytes: int) -> bool:
        """Tell whether a message of so many bytes must wait."""
        if self._messages >= _MAX_MESSAGES:
            return True
        return self._messages > 0 and self._nbytes + _kept(nbytes) > _MAX_NBYTES

    def begin(self, nbytes: int) -> None:
        """Count a message that goes out."""
        self._messages += 1
        self._nbytes += _kept(nbytes)

    def finish(self, nbytes: int) -> None:
        """Count a message that has met its receive."""
        self._messages -= 1
        self._nbytes -= _kept(nbytes)

    def finish_counted(self, messages: int, nbytes: int) -> None:
        """Count several that have, as the peer tells.

        Raises:
            ProtocolError: There were not so many.
        """
        if messages > self._messages or nbytes > self._nbytes:
            raise ProtocolError(f"a receipt for {messages} messages that were not sent")
        self._messages -= messages
        self._nbytes -= nbytes

    def take(self, nbytes: int) -> tuple[int, int] | None:
        """Count a message of the peer's that has met a receive; return now and then how many to tell it of."""
        self._taken += 1
        self._taken_nbytes += nbytes
        if 4 * self._taken < _MAX_MESSAGES and 4 * self._taken_nbytes < _MAX_NBYTES:
            return None
        taken = self._taken, self._taken_nbytes
        self._taken = self._taken_nbytes = 0
        return taken


def _kept(nbytes: int) -> int:
    """Return how much of a message the peer keeps before it is received: longer ones lie with their sender."""
    return nbytes if nbytes <= EAGER_NBYTES else 0
