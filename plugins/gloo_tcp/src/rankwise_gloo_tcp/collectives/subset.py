"""Some ranks of a group, with numbers of their own, that talk over the group's own connections."""

from __future__ import annotations

from collections.abc import Sequence

from rankwise.backends import Array, Context, Work
from rankwise_gloo_tcp.collectives.streams import Pending, segment_nbytes
from rankwise_gloo_tcp.engine.engine import Engine

__all__ = ["Subset"]


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
