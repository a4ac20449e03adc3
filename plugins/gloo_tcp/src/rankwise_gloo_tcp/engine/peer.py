"""One rank as another sees it, and the errors of what needs it when it is gone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rankwise.errors import DistError, DistNetworkError, PeerDiedError
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.protocol.frames import Header
from rankwise_gloo_tcp.protocol.message import Message
from rankwise_gloo_tcp.state import PeerState

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.channel import Channel
    from rankwise_gloo_tcp.transport.connecting import Outgoing


class Peer(PeerState):
    """One rank as another sees it.

    Attributes:
        near: Whether a Unix socket leads there.
        readable: Whether its memory may be read.
        gone: Set when it has left in good order: nothing can be sent there any more.
        dead: Set when it has died or cannot be reached: whatever needs it fails the group.
        drain_until: Until when what it has sent may still come, once it is known to have died.
        rounds_left: And for how many rounds of the loop.
        last_words: By which exception its process ends, once it has said so.
        cause: The error that it is to be `dead` with then.
        frames: What is to be sent once there is a connection.
        connection: What leads there.
        owed_nbytes: The credit that goes before the next frame.
        heard_nbytes: How much had come from it when its channel was drained last.
        failures: How often a handshake with it has failed.
        wanted_at: Since when a connection has been wanted that has not come about; 0 if none is.
        tried_at: When the last attempt to connect began.
    """

    __slots__ = (
        *("card", "cause", "dead", "drain_until", "failures", "frames", "heard_nbytes", "last_words", "near"),
        *("outgoing", "rank", "readable", "rounds_left", "tried_at", "wanted_at"),
    )

    def __init__(self, rank: int, card: Card, near: bool) -> None:
        self.rank, self.card, self.near = rank, card, near
        self.readable = False
        self.gone: PeerDiedError | None = None
        self.dead: DistError | None = None
        self.drain_until, self.rounds_left = 0.0, 0
        self.cause: DistError | None = None
        self.last_words = ""
        self.connection: Channel | None = None
        self.outgoing: Outgoing | None = None
        self.failures = self.owed_nbytes = self.heard_nbytes = 0
        self.wanted_at = self.tried_at = 0.0
        self.frames: list[tuple[Header, memoryview | None, Message | None, bytes]] = []

    @property
    def came_nbytes(self) -> int:
        """How much has come from it."""
        return 0 if self.connection is None else self.connection.came_nbytes


def death(peer: Peer, name: int, why: str) -> PeerDiedError:
    """Return the error of a peer that has died; `name` is its global rank."""
    return PeerDiedError(name, peer.card.host, why)


def broken(name: int, what: str, is_silent: bool = False) -> DistNetworkError:
    """Return the error of a connection to a peer, whose process may live; `name` is its global rank."""
    error = DistNetworkError(what)
    error.rank, error.is_silent = name, is_silent
    return error


def since(age_s: float) -> str:
    """Say for how long something has been so, and since what time of the day."""
    return f"for {age_s:.1f} s (since {time.strftime('%H:%M:%S', time.localtime(time.time() - age_s))})"


def advice(peer: Peer) -> str:
    """Say what to look at where nothing gets through to a peer on another host."""
    return (
        "look for a firewall between the two hosts, or have the ranks use another interface by "
        f"RANKWISE_SOCKET_IFNAME; `rankwise doctor --peer {peer.card.address}` tries the way there"
    )
