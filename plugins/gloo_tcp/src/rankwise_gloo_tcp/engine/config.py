"""What an engine is made for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rankwise.errors import DistError
from rankwise_gloo_tcp.protocol.card import Card

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.encrypted import Encryption


class EngineConfig(NamedTuple):
    """What an engine is made for.

    Attributes:
        rank: This rank.
        cards: Where each rank listens, once for each connection that a pair may have.
        key: The key of the handshake.
        guarded: Whether the headers of TCP connections are guarded.
        names: The global rank of each rank, likewise.
        timeout_s: How long a wait without a time-out of its own may take.
        on_failure: Called once, without the lock, when the group has failed.
        allow_near: Whether Unix sockets may be used.
        encryption: What encrypts TCP connections, if they are to be.
        connections: How many a pair of ranks on different hosts may have; see `Peers`.
    """

    rank: int
    cards: list[Card]
    key: bytes
    guarded: bool
    names: tuple[int, ...]
    timeout_s: float
    on_failure: Callable[[DistError], object]
    allow_near: bool
    encryption: Encryption | None = None
    connections: int = 1

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self.names) // self.connections

    @property
    def guards_payloads(self) -> bool:
        """Whether the payloads of TCP connections are guarded too."""
        return bool(self.cards) and self.cards[self.rank].integrity == "full"
