"""The communicator of `RANKWISE_DEBUG=detail`: ranks compare their calls before any of them reaches MPI.

The comparison is the core's, over the side communicator of the core's tags. Without detail the plain communicator is
made, which has no trace of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankwise.backends import Array, Fingerprint, ReduceOp, Work
from rankwise_mpi.communicator import MpiCommunicator

__all__ = ["CheckedCommunicator"]


class CheckedCommunicator(MpiCommunicator):
    """A group whose ranks all raise `CollectiveMismatchError` if their calls differ."""

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's."""
        call = super().broadcast
        seen = Fingerprint.of("broadcast", array, root=root)
        return self._agreed(seen, lambda left: call(array, root, left), timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into everyone's array."""
        call = super().all_reduce
        seen = Fingerprint.of("all_reduce", array, op)
        return self._agreed(seen, lambda left: call(array, op, left), timeout_s, async_op)

    def reduce(self, array: Array, op: ReduceOp, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into the root's array."""
        call = super().reduce
        seen = Fingerprint.of("reduce", array, op, root)
        return self._agreed(seen, lambda left: call(array, op, root, left), timeout_s, async_op)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`."""
        if sum(part.nbytes for part in parts) > self.limit:
            return super().all_gather(parts, array, timeout_s, async_op)  # derived, and so compared already
        call = super().all_gather
        seen = Fingerprint.of("all_gather", array, parts=parts)
        return self._agreed(seen, lambda left: call(parts, array, left), timeout_s, async_op)

    def gather(
        self, parts: Sequence[Array] | None, array: Array, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy rank i's array into `parts[i]` of the root."""
        call = super().gather
        seen = Fingerprint.of("gather", array, root=root, sent={root: array}, received=parts)
        return self._agreed(seen, lambda left: call(parts, array, root, left), timeout_s, async_op)

    def scatter(
        self, array: Array, parts: Sequence[Array] | None, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy `parts[i]` of the root into rank i's array."""
        call = super().scatter
        seen = Fingerprint.of("scatter", array, root=root, sent=parts, received={root: array})
        return self._agreed(seen, lambda left: call(array, parts, root, left), timeout_s, async_op)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array."""
        if sum(part.size for part in parts) > self.limit:
            return super().reduce_scatter(array, parts, op, timeout_s, async_op)  # derived, and so compared already
        call = super().reduce_scatter
        seen = Fingerprint.of("reduce_scatter", array, op, parts=parts)
        return self._agreed(seen, lambda left: call(array, parts, op, left), timeout_s, async_op)

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array], timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's `ins[j]` into rank j's `outs[i]`."""
        call = super().all_to_all
        seen = Fingerprint.of("all_to_all", ins[self.rank], sent=ins, received=outs)
        return self._agreed(seen, lambda left: call(outs, ins, left), timeout_s, async_op)

    def barrier(self, timeout_s: float, async_op: bool = False) -> Work:
        """Return once every rank has called."""
        call = super().barrier
        return self._agreed(Fingerprint("barrier"), lambda left: call(left), timeout_s, async_op)

    def _agreed(self, seen: Fingerprint, call: Callable[[float], Work], timeout_s: float, async_op: bool) -> Work:
        # Asynchronous calls compare on a thread of their own, for which MPI must allow several.
        later = async_op and self.progresses
        return self._collective(seen, lambda deadline, counts: _do(call, deadline.remaining()), timeout_s, later)


def _do(call: Callable[[float], Work], timeout_s: float) -> None:
    call(timeout_s).wait()
