"""The smallest collectives between hosts, prepared once for each kind of call.

Their data goes along with the comparison of the calls, as that of the plans does, to the same bytes: what a rank has
prepared meets what another does in the general way.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from rankwise.backends import Array, Call, Deadline, Fingerprint
from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.collectives.opening import SMALL_NBYTES, Opening

__all__ = ["Small", "SmallCall"]

#: How many kinds of calls are kept.
_KEPT = 512


class SmallCall:
    """One kind of call: what all ranks say of it is the same, but for its number.

    Args:
        fingerprint: What it is about.
        opening: Where its messages come.
        rank: This rank.
        lengths: How many bytes come along from each rank, and go to all.
    """

    def __init__(self, fingerprint: Fingerprint, opening: Opening, rank: int, lengths: list[int]) -> None:
        self.fingerprint = fingerprint
        #: What each rank says of the call, behind its number.
        self.about = fingerprint.record(rank, 0)[8:]
        self._rank, size = rank, len(lengths)
        self.swap = opening.plan([lengths[rank]] * size, lengths)
        rooms = {peer: opening.room(peer, lengths[peer]) for peer in range(size) if peer != rank}
        self.records = [record for record, _ in rooms.values()]
        self.contents = {peer: content for peer, (_, content) in rooms.items()}

    def offer(self, given: Any) -> bytes:
        """Return what goes to everyone."""
        return b""

    def take(self, given: Any) -> None:
        """Finish, now that all have made the same call and their data is here."""


class _AllReduce(SmallCall):
    """Everyone gets the arrays of all, and reduces them in the order of ranks."""

    def __init__(self, fingerprint: Fingerprint, opening: Opening, rank: int, size: int, array: Array) -> None:
        super().__init__(fingerprint, opening, rank, [array.nbytes] * size)
        self._theirs = {
            peer: np.frombuffer(content, np.uint8).view(array.dtype).reshape(array.shape)
            for peer, content in self.contents.items()
        }
        #: That of the only other.
        self._other = self._theirs[1 - rank] if size == 2 else None

    def offer(self, given: Any) -> bytes:
        data: bytes = given[0].tobytes()
        return data

    def take(self, given: Any) -> None:
        array, op = given
        if self._other is not None:
            op.combine(array, self._other, self._rank == 1)
            return
        arrays = {**self._theirs, self._rank: array.copy()}
        array[...] = arrays[0]
        for peer in range(1, len(arrays)):
            op.combine(array, arrays[peer])


class _Broadcast(SmallCall):
    """Everyone gets the array of the root."""

    def __init__(self, fingerprint: Fingerprint, opening: Opening, rank: int, size: int, array: Array) -> None:
        root = fingerprint.root
        super().__init__(fingerprint, opening, rank, [array.nbytes * (peer == root) for peer in range(size)])
        self._root = None
        if rank != root:
            self._root = np.frombuffer(self.contents[root], np.uint8).view(array.dtype).reshape(array.shape)

    def offer(self, given: Any) -> bytes:
        sent: list[Array] = given[0]
        return sent[0].tobytes() if sent else b""

    def take(self, given: Any) -> None:
        if self._root is not None:
            given[1][0][...] = self._root


class Small:
    """The small calls of one group.

    Attributes:
        calls: By operation, reduce op or root, dtype and shape.
    """

    def __init__(self, opening: Opening, rank: int, size: int) -> None:
        self._opening, self._rank, self._size = opening, rank, size
        self.calls: dict[Hashable, SmallCall] = {}

    @property
    def barrier(self) -> SmallCall:
        """A call that moves nothing."""
        return SmallCall(Fingerprint("barrier"), self._opening, self._rank, [0] * self._size)

    def prepare_all_reduce(self, call: Call) -> None:
        """Keep a call that may come again, if it is small, and elements are reduced as they are."""
        array, op = call.array, call.reduce_op
        assert op is not None
        key = "all_reduce", op.name, array.dtype, array.shape
        if key not in self.calls and self._fits(array) and op.base is op and op.is_plain_on(array.dtype):
            self._keep(key, _AllReduce(call.fingerprint, self._opening, self._rank, self._size, array))

    def prepare_broadcast(self, call: Call) -> None:
        """Keep a call that may come again, if it is small."""
        array = call.array
        key = "broadcast", call.root, array.dtype, array.shape
        # What lies between fields is copied too; NumPy's own copies leave it out.
        if key not in self.calls and self._fits(array) and array.dtype.names is None:
            self._keep(key, _Broadcast(call.fingerprint, self._opening, self._rank, self._size, array))

    def meet(self, call: SmallCall, given: Any, sequence: int, deadline: Deadline) -> bool:
        """Carry a call out; false, with nothing changed, if it is not the same on all ranks."""
        record = sequence.to_bytes(8, "little") + call.about
        lengths = self._opening.swap(call.swap, [record + call.offer(given)] * self._size, deadline)
        for theirs in call.records:
            if theirs != record:
                return False
        if lengths != call.swap.expected:
            raise ProtocolError("a rank sent another number of bytes than its call has")
        call.take(given)
        return True

    def _fits(self, array: Array) -> bool:
        return self._size > 1 and array.nbytes <= SMALL_NBYTES

    def _keep(self, key: Hashable, call: SmallCall) -> None:
        if len(self.calls) >= _KEPT:
            self.calls.clear()
        self.calls[key] = call
