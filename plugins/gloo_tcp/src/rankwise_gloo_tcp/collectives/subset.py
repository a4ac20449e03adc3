"""Some ranks of a group, with numbers of their own, that talk over the group's own connections: one for each pair, or
several, over which a long message goes in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankwise.backends import Array, Context, Deadline, Work
from rankwise_gloo_tcp.collectives.streams import Pending, segment_nbytes
from rankwise_gloo_tcp.engine.engine import Engine

#: A message that is shorter stays on one connection. Parts are sent by Python, and calls without any in C: among hosts
#: of two ranks, with 5 Gbit/s for each connection, calls with shorter messages take twice as long in parts.
LEAST_NBYTES = 256 << 10


class Subset:
    """Messages among some ranks; this one is among them.

    Args:
        engine: What carries them.
        ranks: The group ranks, in their new order.
        context: The group, for the names in messages of errors.

    Attributes:
        segment_nbytes: How long the segments of what these ranks exchange are, the same for all ranks of the group, few
            or many as each talks to; 0 where two ranks trade.
    """

    def __init__(self, engine: Engine, ranks: Sequence[int], context: Context) -> None:
        self._engine, self.ranks = engine, tuple(ranks)
        self.rank, self.size, self.names = self.ranks.index(engine.rank), len(ranks), engine.names
        self.cut_for(self.size)
        self._places = tuple(context.global_ranks[rank] for rank in ranks)

    def cut_for(self, size: int) -> None:
        """Cut what is exchanged as one of so many ranks does that exchange with all others."""
        self.segment_nbytes = 0 if size == 2 else segment_nbytes(size)

    @property
    def context(self) -> Subset:
        """What tells the ranks' names: as a group's context does, by their numbers here."""
        return self

    @property
    def global_ranks(self) -> tuple[int, ...]:
        """The global ranks of the members."""
        return self._places

    @property
    def connections(self) -> int:
        """Over how many connections at a time long messages go to a rank."""
        return 1

    def splits(self, nbytes: int) -> bool:
        """Tell whether a message is so long that it goes in parts, over several connections."""
        return False

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send."""
        return self._engine.send(array, self.ranks[dst], tag)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive."""
        return self._engine.receive(array, None if src is None else self.ranks[src], tag)

    def send_bytes(self, data: memoryview, to: int, tag: int, waited: bool = False, prefix: bytes = b"") -> Pending:
        """Begin to send memory."""
        return self._engine.send_bytes(data, self.ranks[to], tag, waited, prefix)

    def receive_bytes(self, room: memoryview, source: int, tag: int, waited: bool = False) -> Pending:
        """Begin to receive into memory."""
        return self._engine.receive_bytes(room, self.ranks[source], tag, waited)


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
