"""The communicator of `RANKWISE_DEBUG=detail`: ranks compare all calls before these reach MPI, and all messages.

The comparison of calls is the core's, over the side communicator of the core's tags; it takes asynchronous calls too,
and hosts that share no memory. Messages tell their dtype. Without detail the plain communicator is made, which has no
trace of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankwise.backends import Array, Communicator, Context, Fingerprint, ReduceOp, Work
from rankwise_mpi.collectives.gate import Gate
from rankwise_mpi.communicator import MpiCommunicator
from rankwise_mpi.group.pages import Pages
from rankwise_mpi.messages.marked import MarkedMessages
from rankwise_mpi.process.process import Process

__all__ = ["CheckedCommunicator"]


class CheckedCommunicator(MpiCommunicator):
    """A group whose ranks all raise `CollectiveMismatchError` if any calls differ, and compare dtypes of messages."""

    def __init__(self, context: Context, process: Process, pages: Pages, gate: Gate | None) -> None:
        super().__init__(context, process, pages, gate)
        self._marked = MarkedMessages(self._messages)

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send."""
        return self._marked.isend(array, dst, tag)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive."""
        return self._marked.irecv(array, src, tag)

    def send(self, array: Array, dst: int, tag: int, timeout_s: float) -> None:
        """Send, and wait until the buffer is the caller's again."""
        Communicator.send(self, array, dst, tag, timeout_s)

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive, and return the sender's group rank."""
        return Communicator.recv(self, array, src, tag, timeout_s)

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
        if sum(part.nbytes for part in parts) > self._endpoint.limit:
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
        if sum(part.size for part in parts) > self._endpoint.limit:
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
        later = async_op and self._endpoint.progresses
        return self._collective(seen, lambda deadline, counts: _do(call, deadline.remaining()), timeout_s, later)


def _do(call: Callable[[float], Work], timeout_s: float) -> None:
    call(timeout_s).wait()
