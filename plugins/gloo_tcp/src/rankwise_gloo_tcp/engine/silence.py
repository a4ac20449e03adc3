"""Connections that have fallen silent: the other machine answers nothing on them, whether or not its rank lives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from rankwise.errors import DistError
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.peer import Peer, advice, broken, since
from rankwise_gloo_tcp.engine.peers import Peers
from rankwise_gloo_tcp.engine.progress import TICK_S
from rankwise_network import interface, outage

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.channel import Channel

#: The shortest time-out within which heartbeats can tell whether the peer lives.
_JUDGED_S = 8.0


class Silence:
    """What one engine knows of silent connections. All is called with the engine's lock held.

    Such a connection may come back for as long as `RANKWISE_OUTAGE_LIMIT_S` says; then calls that need it fail. A group
    whose time-out would pass before heartbeats have told whether the peer lives learns of the silence from its
    time-out.
    """

    __slots__ = ("_limit_s", "_look_at", "_names", "_peers", "_rank")

    def __init__(self, config: EngineConfig, peers: Peers) -> None:
        self._rank, self._names, self._peers = config.rank, config.names, peers
        self._limit_s = min(outage.limit_s(), config.timeout_s / 2) if config.timeout_s >= _JUDGED_S else inf
        self._look_at = 0.0

    def fallen(self, needs: Callable[[Peer, Channel], bool]) -> Iterator[tuple[Channel, DistError]]:
        """Look from time to time at the connections that are needed; return those to be given up, and why."""
        now = monotonic()
        if now < self._look_at:
            return
        self._look_at = now + TICK_S
        for peer in self._peers.all:
            connection = peer.connection
            if connection is None or peer.dead or peer.gone or not needs(peer, connection):
                continue
            silent_s = connection.silent_s()
            if silent_s > self._limit_s:
                yield (
                    connection,
                    broken(self._names[peer.rank], self._words(peer, connection, silent_s), is_silent=True),
                )

    def trouble(self, peer: Peer) -> str:
        """Say that the connection to a peer is silent; nothing if that is not so."""
        connection = peer.connection
        silent_s = 0.0 if connection is None else connection.silent_s()
        return self._words(peer, connection, silent_s) if connection is not None and silent_s else ""

    def _words(self, peer: Peer, connection: Channel, silent_s: float) -> str:
        (here, port), (there, their_port) = connection.ends()
        me, name = self._peers[self._rank].card, interface.interface_of(here) or "unknown"
        return (
            f"the connection from rank {self._names[self._rank]} on {me.host} (address {here}, port {port}, interface "
            f"{name}) to rank {self._names[peer.rank]} on {peer.card.host} (address {there}, port {their_port}) has "
            f"fallen silent: nothing has been answered {since(silent_s)}; {advice(peer)}"
        )
