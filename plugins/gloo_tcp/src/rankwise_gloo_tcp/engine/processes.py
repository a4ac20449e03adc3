"""The processes of peers on this machine: their end is noticed whatever becomes of their connections."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from rankwise.watch.liveness import ending
from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.mail import Mail
from rankwise_gloo_tcp.engine.peer import death
from rankwise_gloo_tcp.engine.peers import Peers
from rankwise_gloo_tcp.machine.poller import READ
from rankwise_gloo_tcp.transport.connection import Connection
from rankwise_gloo_tcp.transport.pipe import Pipe

__all__ = ["Processes"]


class Processes:
    """Descriptors of processes, in an engine's loop."""

    def __init__(self, loop: Loop, peers: Peers, mail: Mail) -> None:
        self._loop, self._peers, self._mail = loop, peers, mail
        self._descriptors: dict[int, int] = {}
        self._has_left: Callable[[int], bool] = bool

    def watch(self, descriptors: dict[int, int], has_left: Callable[[int], bool]) -> None:
        """Notice the end of peers' processes.

        Args:
            descriptors: A descriptor of the process of each peer, closed here in the end.
            has_left: Tells whether a peer has gone in good order.
        """
        self._has_left = has_left
        for rank, fd in descriptors.items():
            self._descriptors[rank] = fd
            self._loop.add(fd, READ, partial(self._ended, rank))

    def close(self) -> None:
        """Give the descriptors back, and let go of the memory that tells who has left."""
        self._has_left = bool
        for rank in list(self._descriptors):
            self._forget(rank)

    def _ended(self, rank: int, event: int) -> None:
        peer = self._peers[rank]
        cause = ending(self._descriptors[rank], peer.card.pid)
        self._forget(rank)
        if type(peer.connection) is Pipe:
            peer.connection.receive()  # what it has sent before it left; a socket brings its farewell too
        if self._has_left(rank) and peer.gone is None and type(peer.connection) is not Connection:
            self._mail.peer_left(rank)
        self._mail.peer_is_dying(peer, death(peer, self._mail.names[rank], cause))

    def _forget(self, rank: int) -> None:
        fd = self._descriptors.pop(rank, None)
        if fd is not None:
            self._loop.remove(fd)
            os.close(fd)
