"""Offered messages that are copied from their senders' memory, by whoever has the seat, without the lock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from rankwise_gloo_tcp.engine.fate import Fate
from rankwise_gloo_tcp.engine.peer import Peer
from rankwise_gloo_tcp.machine import peer_memory
from rankwise_gloo_tcp.protocol.matching import Arrival
from rankwise_gloo_tcp.protocol.parcel import Parcel

__all__ = ["Fetching"]

#: Called with a message, its receive, and whether the bytes were copied.
Report = Callable[[Arrival[Parcel], Parcel, bool], object]


class Fetching:
    """The copies that are to be made."""

    def __init__(self, lock: threading.Lock, peers: list[Peer], fate: Fate) -> None:
        self._lock, self._peers, self._fate = lock, peers, fate
        self.moved_nbytes = 0
        self._jobs: deque[tuple[Arrival[Parcel], Parcel]] = deque()

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, arrival: Arrival[Parcel], receive: Parcel) -> None:
        """Note a copy to be made."""
        self._jobs.append((arrival, receive))

    def requests(self) -> list[Parcel]:
        """Return the receives whose messages are not being copied yet."""
        return [receive for _, receive in list(self._jobs)]

    def run(self, report: Report) -> None:
        """Make all copies."""
        while self._jobs:
            arrival, receive = self._jobs.popleft()
            peer, header = self._peers[arrival.source], arrival.header
            target = receive.buffer[: header.length]
            copied = peer_memory.read(peer.card.pid, header.address, target, lambda r=receive: r.done)  # type: ignore[misc]
            with self._lock:
                if receive.done:
                    continue
                if self._fate.failure is not None:
                    receive.end(self._fate.failure)  # nobody else knows of it while it is read
                    continue
                peer.readable = peer.readable and copied
                self.moved_nbytes += header.length * copied
                report(arrival, receive, copied)
