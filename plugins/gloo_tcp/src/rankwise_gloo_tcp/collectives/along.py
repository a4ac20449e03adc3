"""Collectives between hosts whose data, or some of it, goes along with the comparison of the calls.

Each kind of call is prepared once. What travels is the same bytes on ranks with the compiled parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import (
    COLLECTIVE_TAG,
    Array,
    Call,
    Deadline,
    ReduceOp,
    accumulation_dtype,
    as_bytes,
    mismatch,
    same_call,
)
from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.collectives.copying import assign
from rankwise_gloo_tcp.collectives.opening import Opening, inline_nbytes
from rankwise_gloo_tcp.collectives.streams import Carrier, Pending, wait_for

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

_NOTHING = memoryview(b"")
#: Of what goes to a rank along which of the given arrays it is, and how many bytes.
_NONE = (-1, 0)
_NOBODY: Mapping[int, Any] = MappingProxyType({})


class Along:
    """One kind of call: what all ranks say of it is the same, but for its number. By itself it moves nothing.

    Args:
        comm: The group.
        opening: Where its messages come.
        call: A call of this kind.
        sent: Of each rank that gets something along which of the given arrays that is, and how many bytes.
        expected: How many bytes come along from ranks.

    Attributes:
        fingerprint: What all ranks compare.
        whole: Whether all of its data goes along.
        sent, expected: As given.
    """

    whole = True

    def __init__(
        self,
        comm: GlooCommunicator,
        opening: Opening,
        call: Call,
        sent: Mapping[int, tuple[int, int]] = _NOBODY,
        expected: Mapping[int, int] = _NOBODY,
    ) -> None:
        self.fingerprint, self.sent, self.expected = call.fingerprint, sent, expected
        #: What this rank says of the call, behind its number.
        self._about = self.fingerprint.record(comm.rank, 0)[8:]
        self._comm, self._opening, self._rank, self._size = comm, opening, comm.rank, comm.size
        ranks, outgoing = range(comm.size), [sent.get(peer, _NONE) for peer in range(comm.size)]
        self._plan = opening.plan([nbytes for _, nbytes in outgoing], [expected.get(peer, 0) for peer in ranks])
        self._which = [index for index, _ in outgoing]
        self._given = {index for index, _ in sent.values()}
        to_others = {index for peer, index in enumerate(self._which) if peer != comm.rank}
        #: Which of them goes to all others, -1 for none; None where each gets something else.
        self._only = min(to_others, default=-1) if len(to_others) < 2 else None
        rooms = {peer: opening.room(peer, expected.get(peer, 0)) for peer in ranks if peer != comm.rank}
        self._records = {peer: record for peer, (record, _) in rooms.items()}
        self._contents = {peer: content for peer, (_, content) in rooms.items()}

    def bind(self, call: Call) -> Any:
        """Take nothing."""

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls, and carry this one out."""
        arrays = self.offer(given)
        self.compare(arrays, sequence, deadline)
        self.take(given, arrays, deadline)

    def offer(self, given: Any) -> Sequence[Array]:
        """Return the arrays of which some go along."""
        return ()

    def take(self, given: Any, arrays: Sequence[Array], deadline: Deadline) -> None:
        """Finish, now that all have made the same call and their data is here."""

    def compare(self, arrays: Sequence[Array], sequence: int, deadline: Deadline) -> None:
        """Compare the calls, and send along what goes to each rank of some arrays."""
        record, plan, only = sequence.to_bytes(8, "little") + self._about, self._plan, self._only
        if plan.small and only is not None:
            whole = record if only < 0 else record + arrays[only].tobytes()
            lengths = self._opening.swap(plan, [whole] * self._size, deadline)
        elif plan.small:
            data = {index: record + arrays[index].tobytes() for index in self._given}
            lengths = self._opening.swap(plan, [data.get(index, record) for index in self._which], deadline)
        else:
            views = {index: as_bytes(arrays[index]) for index in self._given}
            offered = [views.get(index, _NOTHING) for index in self._which]
            lengths = self._opening.swap_long(record, offered, deadline)
            lengths[self._rank] = plan.expected[self._rank]
        for theirs in self._records.values():
            if theirs != record and not same_call(self.rows(sequence)):
                raise mismatch(self._comm, self.fingerprint, sequence, deadline)
        if lengths != plan.expected:
            raise ProtocolError("a rank sent another number of bytes than its call has")

    def rows(self, sequence: int) -> list[bytes]:
        """Return what each rank has said of the call of this number."""
        mine = sequence.to_bytes(8, "little") + self._about
        return [bytes(self._records.get(peer, mine)) for peer in range(self._size)]


class Reduced(Along):
    """Everyone, or a root alone, gets the arrays of all, and reduces them in the order of ranks."""

    def __init__(self, comm: GlooCommunicator, opening: Opening, call: Call) -> None:
        array, op, root, parts = call.array, call.reduce_op, call.root, call.ins
        assert op is not None  # as a reduction has one
        wide = accumulation_dtype(op.name, array.dtype)
        # The factor is each rank's own; a wider accumulator is made where it is reduced.
        self._is_scaled, travels = op.factor is not None, array.dtype if op.factor is None else wide
        self._is_plain, self._wide, self._takes = op.base is op and wide == array.dtype, wide, root in (-1, comm.rank)
        self._own, others = 0 if parts is None else comm.rank, [peer for peer in range(comm.size) if peer != comm.rank]
        each = {peer: (0, array) if parts is None else (peer, parts[peer]) for peer in others if root in (-1, peer)}
        sent = {peer: (index, part.size * travels.itemsize) for peer, (index, part) in each.items()}
        expected = dict.fromkeys(others if self._takes else (), array.size * travels.itemsize)
        super().__init__(comm, opening, call, sent, expected)
        self._theirs = {
            peer: np.frombuffer(self._contents[peer], np.uint8).view(travels).reshape(array.shape) for peer in expected
        }
        #: Of the only other, where it is reduced as it is.
        self._other = self._theirs.get(1 - comm.rank) if self._is_plain and comm.size == 2 else None

    def bind(self, call: Call) -> Any:
        """Return array and op, and parts if there are any."""
        return (call.array, call.reduce_op) if call.ins is None else (call.array, call.reduce_op, call.ins)

    def offer(self, given: Any) -> Sequence[Array]:
        """Return this rank's contributions."""
        contributions: Sequence[Array] = given[2] if len(given) > 2 else given[:1]
        return [given[1].accumulator(each) for each in contributions] if self._is_scaled else contributions

    def take(self, given: Any, arrays: Sequence[Array], deadline: Deadline) -> None:
        """Reduce."""
        if not self._takes:
            return
        out, op, mine = given[0], given[1], arrays[self._own]
        if mine is not out:
            mine = mine.reshape(out.shape)
        if self._other is None:
            self._reduce(mine, out, op)
        elif self._rank == 0:
            op.merge(mine, self._other, out)
        else:
            op.merge(self._other, mine, out)

    def _reduce(self, mine: Array, out: Array, op: ReduceOp) -> None:
        mine = mine.copy() if self._rank else mine  # as it may lie where the total goes
        first, *others = [mine if peer == self._rank else self._theirs[peer] for peer in range(self._size)]
        if self._is_plain:
            assign(out, first)
            for each in others:
                op.merge(out, each, out)
            return
        total = first.astype(self._wide)
        for each in others:
            op.combine(total, each)
        op.finish(total, out, self._size)


class Moved(Along):
    """What ranks have for each other goes along if it is short, and alone if it is not."""

    def __init__(self, comm: GlooCommunicator, opening: Opening, call: Call) -> None:
        rank, root, most = comm.rank, call.root, inline_nbytes(comm.size)
        gives, takes = moved(call, rank)
        to = _numbered(gives, [root] if call.op == "gather" else range(comm.size))
        source = _numbered(takes, [root] if call.op in ("broadcast", "scatter") else range(comm.size))
        #: Which of the arrays that are given, and of those that are taken, this rank has for itself.
        self._kept = (to[rank], source[rank]) if rank in to and rank in source else None
        going, coming = ({peer: index for peer, index in each.items() if peer != rank} for each in (to, source))
        short = {peer: (index, gives[index].nbytes) for peer, index in going.items() if gives[index].nbytes <= most}
        expected = {peer: takes[index].nbytes for peer, index in coming.items() if takes[index].nbytes <= most}
        super().__init__(comm, opening, call, short, expected)
        # What lies between fields is copied too; NumPy's own copies leave it out.
        self._has_fields = call.array.dtype.names is not None
        memory = {peer: np.frombuffer(self._contents[peer], np.uint8) for peer in expected}
        self._come = [
            (coming[peer], each if self._has_fields else each.view(call.array.dtype)) for peer, each in memory.items()
        ]
        self._going_alone = [(peer, index) for peer, index in going.items() if peer not in short]
        self._coming_alone = [(peer, index) for peer, index in coming.items() if peer not in expected]
        self.whole = not (self._going_alone or self._coming_alone)

    def bind(self, call: Call) -> Any:
        """Return what is given and what is taken, each in a list."""
        return moved(call, self._rank)

    def offer(self, given: Any) -> Sequence[Array]:
        """Return what is given."""
        arrays: Sequence[Array] = given[0]
        return arrays

    def take(self, given: Any, arrays: Sequence[Array], deadline: Deadline) -> None:
        """Copy what has come, and move what is long."""
        taken, by = given[1], None if self.whole else carrier(self._comm)
        begun = [] if by is None else self._begin(by, taken, arrays)
        if self._kept is not None:
            source, target = self._kept
            assign(taken[target], arrays[source])
        for index, theirs in self._come:
            into = taken[index]
            assign(into.reshape(-1).view(np.uint8) if self._has_fields else into, theirs)
        if by is not None:
            wait_for(by, begun, deadline)
            self._comm.engine.end_collective()

    def _begin(self, by: Carrier, taken: Sequence[Array], arrays: Sequence[Array]) -> list[Pending]:
        """Begin to move what is long."""
        tag = COLLECTIVE_TAG
        return [
            *(by.receive_bytes(as_bytes(taken[index]), peer, tag, True) for peer, index in self._coming_alone),
            *(by.send_bytes(as_bytes(arrays[index]), peer, tag, True) for peer, index in self._going_alone),
        ]


def moved(call: Call, rank: int) -> tuple[Sequence[Array], Sequence[Array]]:
    """Return what a rank gives and takes in a call that reduces nothing: one array, or one for each rank."""
    if call.op == "broadcast":
        return ([call.array], []) if call.root == rank else ([], [call.array])
    scatters = call.op == "scatter"
    return call.ins or ([] if scatters else [call.array]), call.outs or ([call.array] if scatters else [])


def carrier(comm: GlooCommunicator) -> Carrier:
    """Return what carries long data among all ranks of a group."""
    return comm.engine if comm.spread is None else comm.spread(range(comm.size))


def _numbered(arrays: Sequence[Array], ranks: Sequence[int]) -> dict[int, int]:
    """Return which of some arrays belongs to each rank: the only one, or one for each; nothing if there are none."""
    return {rank: rank if len(arrays) > 1 else 0 for rank in ranks} if arrays else {}
