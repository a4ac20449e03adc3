"""The small collectives between hosts, prepared once for each kind of call.

Their data goes along with the comparison of the calls, as that of the plans does, to the same bytes: what a rank has
prepared meets what another does by the slow path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import Array, Call, Deadline, as_bytes, mismatch
from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.collectives.copying import assign
from rankwise_gloo_tcp.collectives.opening import Opening, inline_nbytes

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["SmallAllGather", "SmallAllReduce", "SmallBroadcast", "SmallCall", "is_small"]


_NOTHING = memoryview(b"")


def is_small(array: Array, size: int) -> bool:
    """Tell whether data of this length may go along with the record, among so many ranks."""
    return bool(array.nbytes <= inline_nbytes(size))


class SmallCall:
    """One kind of call: what all ranks say of it is the same, but for its number. By itself it moves nothing.

    Args:
        comm: The group.
        opening: Where its messages come.
        call: A call of this kind.
        lengths: How many bytes come along from each rank, and go to all.
    """

    def __init__(self, comm: GlooCommunicator, opening: Opening, call: Call, lengths: list[int]) -> None:
        self.fingerprint = call.fingerprint
        #: What each rank says of the call, behind its number.
        self._about = self.fingerprint.record(comm.rank, 0)[8:]
        self._comm, self._opening, self._rank, size = comm, opening, comm.rank, len(lengths)
        self._plan = opening.plan([lengths[comm.rank]] * size, lengths)
        rooms = {peer: opening.room(peer, lengths[peer]) for peer in range(size) if peer != comm.rank}
        self._records = [record for record, _ in rooms.values()]
        self._contents = {peer: content for peer, (_, content) in rooms.items()}

    def bind(self, call: Call) -> Any:
        """Take nothing."""

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls."""
        self._swap(None, sequence, deadline)

    def _swap(self, array: Array | None, sequence: int, deadline: Deadline) -> None:
        """Compare the calls, and send an array along to everyone."""
        record, plan = sequence.to_bytes(8, "little") + self._about, self._plan
        lengths: list[int]
        if plan.small:
            data = record if array is None else record + array.tobytes()
            lengths = self._opening.swap(plan, [data] * len(plan.expected), deadline)
        else:
            view = _NOTHING if array is None else as_bytes(array)
            lengths = self._opening.swap_long(record, [view] * len(plan.expected), deadline)
            lengths[self._rank] = plan.expected[self._rank]
        for theirs in self._records:
            if theirs != record:
                raise mismatch(self._comm, self.fingerprint, sequence, deadline)
        if lengths != plan.expected:
            raise ProtocolError("a rank sent another number of bytes than its call has")

    def _views(self, array: Array) -> dict[int, Array]:
        """Return what comes from each rank, as arrays like this one."""
        return {
            peer: np.frombuffer(content, np.uint8).view(array.dtype).reshape(array.shape)
            for peer, content in self._contents.items()
            if len(content) == array.nbytes
        }


class SmallAllReduce(SmallCall):
    """Everyone gets the arrays of all, and reduces them in the order of ranks."""

    def __init__(self, comm: GlooCommunicator, opening: Opening, call: Call) -> None:
        super().__init__(comm, opening, call, [call.array.nbytes] * comm.size)
        self._theirs = self._views(call.array)
        #: That of the only other.
        self._other = self._theirs[1 - comm.rank] if comm.size == 2 else None

    def bind(self, call: Call) -> Any:
        """Return array and op."""
        return call.array, call.reduce_op

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls, and reduce."""
        array, op = given
        self._swap(array, sequence, deadline)
        if self._other is not None:
            first, second = (self._other, array) if self._rank == 1 else (array, self._other)
            op.merge(first, second, array)
            return
        arrays = {**self._theirs, self._rank: array.copy()}
        array[...] = arrays[0]
        for peer in range(1, len(arrays)):
            op.merge(array, arrays[peer], array)


class SmallBroadcast(SmallCall):
    """Everyone gets the array of the root."""

    def __init__(self, comm: GlooCommunicator, opening: Opening, call: Call) -> None:
        super().__init__(comm, opening, call, [call.array.nbytes * (peer == call.root) for peer in range(comm.size)])
        self._root = None if comm.rank == call.root else self._views(call.array)[call.root]

    def bind(self, call: Call) -> Any:
        """Return what is sent and what is received, each in a list."""
        return ([call.array], []) if self._root is None else ([], [call.array])

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls, and copy."""
        sent, received = given
        self._swap(sent[0] if sent else None, sequence, deadline)
        if self._root is not None:
            received[0][...] = self._root


class SmallAllGather(SmallCall):
    """Everyone gets the arrays of all, which are of one length."""

    def __init__(self, comm: GlooCommunicator, opening: Opening, call: Call) -> None:
        super().__init__(comm, opening, call, [call.array.nbytes] * comm.size)
        self._theirs = self._views(call.array.reshape(-1))

    def bind(self, call: Call) -> Any:
        """Return what is sent and what is received, by rank."""
        return call.array, call.outs

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls, and copy."""
        array, outs = given
        self._swap(array, sequence, deadline)
        assign(outs[self._rank], array)
        for peer, theirs in self._theirs.items():
            assign(outs[peer], theirs)
