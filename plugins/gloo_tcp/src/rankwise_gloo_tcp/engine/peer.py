"""What an engine knows about one other rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.errors import DistError, PeerDiedError
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.protocol.frames import Header
from rankwise_gloo_tcp.protocol.parcel import Parcel
from rankwise_gloo_tcp.transport.connection import Connection
from rankwise_gloo_tcp.transport.pipe import Pipe

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.knocking import Dial

__all__ = ["GONE", "Peer", "death"]

#: One text, however it is noticed, so that all ranks raise the same error.
GONE = "its connections have ended"


class Peer:
    """One rank as another sees it.

    Attributes:
        near: Whether a Unix socket leads there.
        readable: Whether its memory may be read.
        gone: Set when it has left in good order: nothing can be sent there any more.
        dead: Set when it has died: whatever needs it fails the group.
        last_words_until: Until when what it has sent may still come, once it is known to have died.
        rounds_left: And for how many rounds of the loop.
        cause: The error that it is to be `dead` with then.
        frames: What is to be sent once there is a connection.
        owed_nbytes: The credit that goes before the next frame.
        heard_nbytes: How much had come from it when its last words were looked for last.
        failures: How often a handshake with it has failed.
    """

    #: Compiled messages look at what is in a slot without a look-up.
    __slots__ = ("__dict__", "connection", "gone")

    def __init__(self, rank: int, card: Card, near: bool) -> None:
        self.rank, self.card, self.near = rank, card, near
        self.readable = False
        self.gone: PeerDiedError | None = None
        self.dead: DistError | None = None
        self.last_words_until, self.rounds_left = 0.0, 0
        self.cause: DistError | None = None
        self.connection: Connection | Pipe | None = None
        self.dial: Dial | None = None
        self.failures = self.owed_nbytes = self.heard_nbytes = 0
        self.frames: list[tuple[Header, memoryview | None, Parcel | None, bytes]] = []


def death(peer: Peer, name: int, why: str) -> PeerDiedError:
    """Return the error of a peer that has died; `name` is its global rank."""
    return PeerDiedError(name, peer.card.host, why)
