"""What a communicator asks of whatever runs its collectives; by itself all of them as the core derives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import Array, Communicator, Deadline, Fingerprint, ReduceOp, Work
from rankwise.backends.shortcuts import Caller, Shortcuts
from rankwise.basics.arrays import is_sparse
from rankwise.collective.issue_order import IssueOrder
from rankwise.errors import DistError

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["Ways"]


class Ways:
    """Which way each collective of one group goes.

    Subclasses override what has a faster way. Arrays that are not NumPy's go by way of the host or in parts, whatever
    the ways between ranks are.
    """

    #: The group of this host alone, where these ways use one.
    local: GlooCommunicator | None = None

    def __init__(self, comm: GlooCommunicator) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.collective = comm._collective

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's."""
        if type(array) is not np.ndarray:
            from rankwise_gloo_tcp.collectives import staging

            return self.collective(*staging.broadcast(self.comm, array, root), timeout_s, async_op)
        return Communicator.broadcast(self.comm, array, root, timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce the arrays of all ranks, element by element, into everyone's array."""
        if type(array) is np.ndarray:
            return Communicator.all_reduce(self.comm, array, op, timeout_s, async_op)
        if is_sparse(array):
            from rankwise_gloo_tcp.collectives import sparse

            return self.collective(*sparse.all_reduce(self.comm, array), timeout_s, async_op)
        from rankwise_gloo_tcp.collectives import staging

        return self.collective(*staging.all_reduce(self.comm, array, op), timeout_s, async_op)

    def reduce(self, array: Array, op: ReduceOp, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into the root's array; those of the others keep their content."""
        return Communicator.reduce(self.comm, array, op, root, timeout_s, async_op)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`."""
        return Communicator.all_gather(self.comm, parts, array, timeout_s, async_op)

    def gather(
        self, parts: Sequence[Array] | None, array: Array, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy rank i's array into `parts[i]` of the root; `parts` is None elsewhere."""
        return Communicator.gather(self.comm, parts, array, root, timeout_s, async_op)

    def scatter(
        self, array: Array, parts: Sequence[Array] | None, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy `parts[i]` of the root into rank i's array; `parts` is None elsewhere."""
        return Communicator.scatter(self.comm, array, parts, root, timeout_s, async_op)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array. The parts keep their content."""
        return Communicator.reduce_scatter(self.comm, array, parts, op, timeout_s, async_op)

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array], timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's `ins[j]` into rank j's `outs[i]`."""
        return Communicator.all_to_all(self.comm, outs, ins, timeout_s, async_op)

    def barrier(self, timeout_s: float, async_op: bool = False) -> Work:
        """Return once every rank has called."""
        return Communicator.barrier(self.comm, timeout_s, async_op)

    def carry_out(self, fingerprint: Fingerprint, body: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, and run the collective."""
        Communicator._carry_out(self.comm, fingerprint, body, sequence, deadline)

    def shortcuts(self, order: IssueOrder, sequence: Iterator[int], group: Caller) -> Shortcuts:
        """Return what does the plainest calls in one go.

        Args:
            order: Gives each collective its turn.
            sequence: Numbers the collectives.
            group: The group as its callers see it.
        """
        return Shortcuts()

    def give_up(self, error: DistError) -> None:
        """End what is pending in groups of these ways' own."""

    def close(self) -> None:
        """Give back what belongs to these ways alone."""
