"""Long messages among some ranks, each in parts over all connections that a pair of ranks has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankwise.backends import Context, Deadline
from rankwise_gloo_tcp.collectives.streams import Pending
from rankwise_gloo_tcp.collectives.subset import Subset
from rankwise_gloo_tcp.engine.engine import Engine

__all__ = ["LEAST_NBYTES", "Spread"]

#: A message that is shorter stays on one connection. Parts are sent by Python, and calls without any in C: among hosts
#: of two ranks, with 5 Gbit/s for each connection, calls with shorter messages take twice as long in parts.
LEAST_NBYTES = 256 << 10


class Spread(Subset):
    """Messages among some ranks; what is long goes in parts, over several connections at the same time.

    Both ends know how long a message is, so that each cuts it in the same way.

    Args:
        engine: What carries them.
        connections: How many connections a pair has.
        context: The group, for the names in messages of errors.
        ranks: The group ranks, in their new order.
    """

    def __init__(self, engine: Engine, connections: int, context: Context, ranks: Sequence[int]) -> None:
        super().__init__(engine, ranks, context)
        self._connections = connections

    @property
    def connections(self) -> int:
        """Over how many connections at a time long messages go to a rank."""
        return self._connections

    def splits(self, nbytes: int) -> bool:
        """Tell whether a message is so long that it goes in parts."""
        return nbytes >= LEAST_NBYTES

    def send_bytes(self, data: memoryview, to: int, tag: int, waited: bool = False, prefix: bytes = b"") -> Pending:
        """Begin to send memory; nothing goes in front of what is long."""
        if not self.splits(len(data)):
            return super().send_bytes(data, to, tag, waited, prefix)
        return self._in_parts(data, to, lambda part, peer: self._engine.send_bytes(part, peer, tag, waited))

    def receive_bytes(self, room: memoryview, source: int, tag: int, waited: bool = False) -> Pending:
        """Begin to receive into memory, which what comes fills."""
        if not self.splits(len(room)):
            return super().receive_bytes(room, source, tag, waited)
        return self._in_parts(room, source, lambda part, peer: self._engine.receive_bytes(part, peer, tag, waited))

    def _in_parts(self, memory: memoryview, place: int, begin: Callable[[memoryview, int], Pending]) -> _Parts:
        # Peer `k * size + rank` of the engine is rank `rank` over the connection number `k`.
        count, peer, size = self._connections, self.ranks[place], self._engine.size
        ends = [len(memory) * index // count & -64 for index in range(count)] + [len(memory)]
        return _Parts([begin(memory[ends[k] : ends[k + 1]], k * size + peer) for k in range(count)])


class _Parts:
    """A message in parts, which ends when all of them have."""

    def __init__(self, parts: list[Pending]) -> None:
        self._parts, self.peer = parts, parts[0].peer

    @property
    def done(self) -> bool:
        """Whether all parts have ended."""
        return all(part.done for part in self._parts)

    @property
    def error(self) -> BaseException | None:
        """Why one of them has failed."""
        return next((part.error for part in self._parts if part.error is not None), None)

    def wait(self, timeout: float) -> bool:
        """Move messages until all parts have ended."""
        deadline = Deadline(timeout)
        return all(part.wait(deadline.remaining()) for part in self._parts)
