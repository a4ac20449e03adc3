"""The compiled wires of a group, and what they leave to Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rankwise.backends import COLLECTIVE_TAG, Array, Deadline, ReduceOp, Timeout, as_bytes
from rankwise_gloo_tcp.collectives.compiled import COMPILED_OPS, CallHooks
from rankwise_gloo_tcp.collectives.opening import Opening
from rankwise_gloo_tcp.collectives.streams import Carrier, Exchange, Lanes, Pending, Subset, wait_for
from rankwise_gloo_tcp.engine.fast_path import WireHooks
from rankwise_gloo_tcp.engine.peer import Peer
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.flow import Window
from rankwise_native import Wire

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

#: An array, and which of its bytes.
Piece: TypeAlias = "tuple[Array, tuple[int, int]]"
#: A rank, whether it has yet to be sent to, whether something has yet to come from there, how many elements of that are
#: reduced, and what else to wait for.
Lane: TypeAlias = "tuple[int, bool, bool, int, Any]"


class _Link(NamedTuple):
    """What a wire knows of a rank: how errors and the engine call it, what leads there, and where what comes goes."""

    name: int
    rank: int
    peer: Peer
    window: Window
    room: memoryview


class _Hooks(WireHooks):
    """What the wire of one group asks for."""

    def __init__(self, comm: GlooCommunicator, opening: Opening, ranks: Sequence[int], calls: CallHooks) -> None:
        super().__init__(comm.engine)
        self.turn, self._comm, self._opening, self._calls = comm.order.turn, comm, opening, calls
        self._between = Subset(comm.engine, ranks, comm.context)

    def finish(
        self, given: Deadline | Timeout | None, record: bytes, state: list[tuple[int, Any, bool, Any]]
    ) -> tuple[Deadline, list[int]]:
        """Go on with an exchange.

        Args:
            given: The call's deadline, or its time-out; None is the group's.
            record: What goes before the data.
            state: Of each other rank its number, what must still be sent, whether its message is here, and a request
                to wait for or None.

        Returns:
            When the call must be done, and how many bytes have come from each rank that had not sent all before.
        """
        engine, deadline, opening = self._engine, self._calls.deadline(given), self._opening
        receives = {peer: opening.receive(peer) for peer, _, taken, _ in state if not taken}
        sends: list[Request] = [rest for _, _, _, rest in state if rest is not None]
        sends += [opening.send(peer, record, data) for peer, data, _, _ in state if data is not None]
        wait_for(engine, list(receives.values()), deadline)
        wait_for(engine, sends, deadline)
        return deadline, [receives[peer].nbytes if peer in receives else 0 for peer, _, _, _ in state]

    def stream(
        self,
        given: Deadline | Timeout | None,
        trade: tuple[int, int, bool],
        out: Piece | None,
        into: Piece | None,
        rest: Request | None,
    ) -> Deadline:
        """Go on with one segment of a long collective, and return when all of it must be done.

        Args:
            given: The call's deadline, or its time-out; None is the group's.
            trade: The other rank, as the engine calls it; the tag of the segments; and whether what comes goes into
                memory of its own, to be reduced, and not to its place.
            out: What must still be sent.
            into: What has yet to come, and its place.
            rest: A request to wait for as well, if part of a segment has been sent.
        """
        engine, deadline, (peer, tag, aside) = self._engine, self._calls.deadline(given), trade
        receives, sends = [], [] if rest is None else [rest]
        if into is not None:
            room = memoryview(_bytes_of(into))
            room = self._opening.room_of(peer)[: len(room)] if aside else room
            receives.append(engine.receive_bytes(room, peer, tag, True))
        if out is not None:
            sends.append(engine.send_bytes(memoryview(_bytes_of(out)), peer, tag, True))
        wait_for(engine, receives, deadline)
        wait_for(engine, sends, deadline)
        return deadline

    def exchange(
        self,
        given: Deadline | Timeout | None,
        sent: Sequence[Piece | None],
        taken: Sequence[Piece | None],
        how: tuple[str | None, Any],
        left: tuple[int, int, list[Lane]],
    ) -> Deadline:
        """Go on with a round of an exchange and with all that follow, and return when all of it must be done.

        In C the ranks make one round after the other, which is slow where each has to wait for a processor. These are
        made at the same time.

        Args:
            given: The call's deadline, or its time-out; None is the group's.
            sent: What goes to each rank.
            taken: Where what comes from each goes, or is reduced into.
            how: By what, and the dtype of all that.
            left: The first element of the round, the end of it, and its lanes.
        """
        deadline, (name, dtype), (begin, end, lanes) = self._calls.deadline(given), how, left
        op, out, into = COMPILED_OPS.get(name or ""), _lanes(sent, dtype), _lanes(taken, dtype)
        now = _Rest(self._between, self._opening, _cut(out, begin, end), _cut(into, begin, end), op, lanes)
        nbytes = (end - begin) * max(flat.itemsize for flat in (*out.values(), *into.values()))
        later = Exchange(self._between, _cut(out, end), _cut(into, end), op, nbytes)
        now.finish(deadline)
        later.finish(deadline)
        return deadline

    def finish_message(self, request: Request, peer: int) -> None:
        """Wait until a message has been sent."""
        self._comm._finish(request, "send to", peer, self._calls.group.timeout_s)

    def receive(self, array: Array, source: int, tag: int) -> None:
        """Receive a message for which this has looked in vain."""
        request = self._engine.receive(array, source, tag, waited=True)
        self._comm._finish(request, "recv from", source, self._calls.group.timeout_s)


def _bytes_of(piece: Piece) -> Array:
    array, (begin, end) = piece
    found: Array = np.frombuffer(as_bytes(array), np.uint8)[begin:end]
    return found


def _lanes(pieces: Sequence[Piece | None], dtype: Any) -> Lanes:
    """Return what goes to some ranks, or comes from there, as arrays."""
    return {peer: _bytes_of(piece).view(dtype) for peer, piece in enumerate(pieces) if piece is not None}


def make_wire(comm: GlooCommunicator, opening: Opening, ranks: Sequence[int], calls: CallHooks) -> Wire:
    """Return the compiled wire among few ranks of a group, in the order of their opening."""
    engine, names = comm.engine, comm.context.global_ranks
    windows, rooms = engine.dispatcher.outbox.windows, opening.rooms()
    links = [
        None if rank == comm.rank else _Link(names[rank], rank, engine.peers[rank], windows[rank], rooms[place])
        for place, rank in enumerate(ranks)
    ]
    spin_ns = int(engine.progress_lock.spin_policy.spin_s * 1e9)
    return Wire(ranks.index(comm.rank), links, _Hooks(comm, opening, ranks, calls), spin_ns)


# ---------------------------------------------------------------------- rounds that take long


def _cut(lanes: Lanes, begin: int, end: int | None = None) -> Lanes:
    return {peer: flat[begin:end] for peer, flat in lanes.items()}


class _Rest:
    """What C has left of a round, which begins immediately.

    Args:
        between: What carries messages among the ranks.
        opening: What has a room for a segment of each.
        sent, taken: What the round is about.
        op: By what all that comes is reduced.
        lanes: How far each rank has come.
    """

    def __init__(
        self, between: Carrier, opening: Opening, sent: Lanes, taken: Lanes, op: ReduceOp | None, lanes: list[Lane]
    ) -> None:
        self._between, self._op = between, op
        rooms = opening.rooms()
        self._receives: list[Pending] = []
        self._sums: list[tuple[Array, Array]] = []
        for peer, _, comes, merged, _ in lanes:
            if peer not in taken or not taken[peer].size:
                continue
            segment, room = taken[peer], as_bytes(taken[peer])
            if op is not None:
                room = rooms[peer][: segment.nbytes]
                self._sums.append((segment[merged:], np.frombuffer(room, np.uint8).view(segment.dtype)[merged:]))
            if comes:
                self._receives.append(between.receive_bytes(room, peer, COLLECTIVE_TAG, True))
        self._sends: list[Pending] = [rest for *_, rest in lanes if rest is not None]
        self._sends += [
            between.send_bytes(as_bytes(sent[peer]), peer, COLLECTIVE_TAG, True) for peer, goes, *_ in lanes if goes
        ]

    def finish(self, deadline: Deadline) -> None:
        """Return when it is done."""
        wait_for(self._between, self._receives, deadline)
        for segment, theirs in self._sums:
            if self._op is not None:
                self._op.combine(segment, theirs)
        wait_for(self._between, self._sends, deadline)
