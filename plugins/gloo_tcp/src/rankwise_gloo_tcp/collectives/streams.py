"""Large data over connections, in segments, which are sent, received and combined at the same time, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from rankwise.backends import COLLECTIVE_TAG, Array, Context, Deadline, ReduceOp, Work, as_bytes
from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.collectives.copying import cut, pieces
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.engine.request import Request

#: What goes to some ranks, or comes from there.
Lanes: TypeAlias = Mapping[int, Array]
#: A message that is under way, and what carries messages among some ranks.
Pending: TypeAlias = "Request | _Parts"
Carrier: TypeAlias = "Engine | Subset"

#: Segments are a quarter of a rank's share, within these bounds: each costs some tens of microseconds of its own.
_LEAST_NBYTES, _MOST_NBYTES = 128 << 10, 1 << 20
#: How much all segments have together that go to or from one of several ranks at the same time.
_ROUND_NBYTES = 2 << 20
#: How many segments of each peer may be here before they are combined: for each connection, and for all of them. With
#: fewer what comes has to be asked for while connections stand still, with more it is in no cache when it is combined.
_DEPTH, _MOST_DEPTH = 3, 12
_RESULT_TAG = COLLECTIVE_TAG + 1
#: A segment of a broadcast is sent once the one that is so many before it is known to have come: windows hold them, and
#: credit comes with what is said of that.
_AHEAD = 3
#: A message that is shorter stays on one connection. Parts are sent by Python, and calls without any in C: among hosts
#: of two ranks, with 5 Gbit/s for each connection, calls with shorter messages take twice as long in parts.
LEAST_NBYTES = 256 << 10


def all_reduce(engine: Carrier, array: Array, op: ReduceOp, deadline: Deadline) -> None:
    """Reduce a flat array in place: each rank reduces its share, and sends it to everyone.

    Bytes sent: 2(p-1)/p N. Scratch: three segments for each peer, and for each connection a few more.
    """
    shares = cut(array, engine.size)
    others = {peer: share for peer, share in enumerate(shares) if peer != engine.rank}
    _Stream(engine, op, deadline, max(share.nbytes for share in shares)).run(shares[engine.rank], others)


def trade(engine: Carrier, sent: Array | None, taken: Array | None, op: ReduceOp | None, deadline: Deadline) -> None:
    """Send one flat array to the other of two ranks, and take another from there; either may be missing.

    Bytes sent: those of what is sent. Where data goes one way only, an element back for each segment but the last few.

    Args:
        engine: What carries messages between the two.
        sent: What goes.
        taken: Where what comes goes; its elements are as long.
        op: By what it is reduced into that, where both are given; None puts it there.
        deadline: When all must be done.
    """
    peer = 1 - engine.rank
    if sent is not None and taken is not None:
        Exchange(engine, {peer: sent}, {peer: taken}, op, _MOST_NBYTES).finish(deadline)
    elif sent is not None:
        segments = pieces(sent, _MOST_NBYTES)
        receipts = [
            engine.receive_bytes(as_bytes(np.empty_like(segment[:1])), peer, COLLECTIVE_TAG, True)
            for segment in segments[_AHEAD:]
        ]
        sends = []
        for index, segment in enumerate(segments):
            if index >= _AHEAD:
                wait_for(engine, [receipts[index - _AHEAD]], deadline)
            sends.append(engine.send_bytes(as_bytes(segment), peer, COLLECTIVE_TAG, True))
        wait_for(engine, sends, deadline)
    elif taken is not None:
        into = pieces(taken, _MOST_NBYTES)
        coming = [engine.receive_bytes(as_bytes(segment), peer, COLLECTIVE_TAG, True) for segment in into]
        for index, (segment, request) in enumerate(zip(into, coming, strict=True)):
            wait_for(engine, [request], deadline)
            if index < len(into) - _AHEAD:  # for the receipts of so many the other waits
                wait_for(engine, [engine.send_bytes(as_bytes(segment[:1]), peer, COLLECTIVE_TAG, True)], deadline)


def segment_nbytes(size: int) -> int:
    """Return how long segments are that one of so many ranks exchanges with all others at the same time."""
    return max(_LEAST_NBYTES * 2, min(_MOST_NBYTES, _ROUND_NBYTES // size & -64))


def longest_nbytes(array: Array, size: int) -> int:
    """Return how long the longest message is by which so many ranks reduce a flat array."""
    share_nbytes = int(-(-array.size // size) * array.itemsize)
    return min(share_nbytes, _part_nbytes(share_nbytes))


def _part_nbytes(share_nbytes: int) -> int:
    """Return how long the segments of a share are."""
    return min(_MOST_NBYTES, max(_LEAST_NBYTES, share_nbytes // 4))


class Exchange:
    """One in which flat arrays go to some of the other ranks, and others come from there; it begins immediately.

    Bytes sent: those of what is sent. Scratch: those of what is reduced.

    Args:
        engine: What carries messages among them.
        sent: What goes to each.
        taken: Where what comes from each goes; its elements are as long.
        op: By what all of it is reduced into one array, which stands for each rank in `taken`, in the order of ranks;
            None puts it there.
        nbytes: How long segments are, the same on all ranks.
    """

    def __init__(self, engine: Carrier, sent: Lanes, taken: Lanes, op: ReduceOp | None, nbytes: int) -> None:
        into = {peer: pieces(flat, nbytes) for peer, flat in sorted(taken.items())}
        out = {peer: pieces(flat, nbytes) for peer, flat in sorted(sent.items())}
        self._engine, self._op = engine, op
        self._coming = [
            (segment, room, engine.receive_bytes(as_bytes(room), peer, COLLECTIVE_TAG, True))
            for peer, segment in _in_turns(into)
            for room in [segment if op is None else np.empty_like(segment)]
        ]
        self._sends = [
            engine.send_bytes(as_bytes(segment), peer, COLLECTIVE_TAG, True) for peer, segment in _in_turns(out)
        ]

    def finish(self, deadline: Deadline) -> None:
        """Return when it is done."""
        for segment, room, request in self._coming:
            wait_for(self._engine, [request], deadline)
            if self._op is not None:
                self._op.combine(segment, room)
        wait_for(self._engine, self._sends, deadline)


def _in_turns(cut_up: Mapping[int, Sequence[Array]]) -> list[tuple[int, Array]]:
    """Return the first segment of each rank, then the second of each."""
    most = max(map(len, cut_up.values()), default=0)
    return [
        (peer, segments[index]) for index in range(most) for peer, segments in cut_up.items() if index < len(segments)
    ]


def wait_for(engine: Carrier, requests: Sequence[Pending], deadline: Deadline) -> None:
    """Wait for messages.

    Raises:
        DistTimeoutError: Some have not ended in time; it names their ranks.
    """
    for request in requests:
        if request.done and request.error is None:
            continue
        try:
            request.wait(deadline.remaining())
        except DistTimeoutError:
            late = sorted({engine.names[r.peer] for r in requests if not r.done and r.peer is not None})
            who = f"waiting for rank{'s' * (len(late) > 1)} {', '.join(map(str, late))}"
            failure = DistTimeoutError(f"not done within {deadline.timeout_s:g} s, {who}")
            failure.waited_for = tuple(late)
            raise failure from None


class _Stream:
    """One reduction in segments. The size of the largest share must be the same on all ranks."""

    def __init__(self, engine: Carrier, op: ReduceOp, deadline: Deadline, share_nbytes: int) -> None:
        self.engine, self.op, self.deadline = engine, op, deadline
        self._nbytes = _part_nbytes(share_nbytes)
        self._depth = min(_DEPTH * engine.connections, _MOST_DEPTH)

    def run(self, mine: Array, others: Mapping[int, Array]) -> None:
        """Reduce everyone's contributions to a share, for all, and take the others' shares once they are reduced.

        Args:
            mine: The share that this rank reduces.
            others: This rank's contributions to the shares of others, and where these go.
        """
        engine = self.engine
        segments = pieces(mine, self._nbytes)
        coming = {
            peer: [self._receive(np.empty_like(segments[0]), segment, peer) for segment in segments[: self._depth]]
            for peer in others
        }
        sent, finished = self._send_all(others), self._receive_all(others)
        for index, segment in enumerate(segments):
            for peer, waiting in coming.items():
                scratch, request = waiting.pop(0)
                wait_for(engine, [request], self.deadline)
                self.op.combine(segment, scratch[: segment.size])
                if index + self._depth < len(segments):
                    waiting.append(self._receive(scratch, segments[index + self._depth], peer))
            self.op.average(segment, engine.size)
            sent += [engine.send_bytes(as_bytes(segment), peer, _RESULT_TAG, True) for peer in others]
        wait_for(engine, finished, self.deadline)
        wait_for(engine, sent, self.deadline)

    def _receive(self, scratch: Array, segment: Array, peer: int) -> tuple[Array, Pending]:
        """Begin to receive what is to be combined with a segment."""
        room = as_bytes(scratch[: segment.size])
        return scratch, self.engine.receive_bytes(room, peer, COLLECTIVE_TAG, True)

    def _send_all(self, outgoing: Mapping[int, Array]) -> list[Pending]:
        """Send in the order in which the others combine, to all of them in turn."""
        cut_up = {peer: pieces(share, self._nbytes) for peer, share in outgoing.items()}
        return [
            self.engine.send_bytes(as_bytes(segment), peer, COLLECTIVE_TAG, True) for peer, segment in _in_turns(cut_up)
        ]

    def _receive_all(self, results: Mapping[int, Array]) -> list[Pending]:
        cut_up = {peer: pieces(share, self._nbytes) for peer, share in results.items()}
        return [
            self.engine.receive_bytes(as_bytes(segment), peer, _RESULT_TAG, True) for peer, segment in _in_turns(cut_up)
        ]


# ---------------------------------------------------------------------- what carries them


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
        self._parts = parts
        self.peer: int | None = parts[0].peer

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
