"""Collectives of ranks on one host, at the board that they share.

What does not fit through the board goes by messages, once the board has compared the calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import Array, Deadline, Fingerprint, ReduceOp, Work, mismatch
from rankwise.backends.shortcuts import Caller, Shortcuts
from rankwise.collective.issue_order import IssueOrder
from rankwise_gloo_tcp.board import agreement
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import Call, Errand, Messages
from rankwise_gloo_tcp.board.moving import Unreadable
from rankwise_gloo_tcp.board.prepared import Prepared
from rankwise_gloo_tcp.collectives.shortest import at_board
from rankwise_gloo_tcp.collectives.ways import Ways

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["OneHost"]


class OneHost(Ways):
    """The ways of a group whose ranks share a board."""

    def __init__(self, comm: GlooCommunicator, board: Board) -> None:
        super().__init__(comm)
        self.board, self.prepared = board, Prepared(board)

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's."""
        errand = self.prepared.broadcast(array, root) if type(array) is np.ndarray else None
        if errand is None:
            return super().broadcast(array, root, timeout_s, async_op)
        return self.collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce the arrays of all ranks, element by element, into everyone's array."""
        errand = self.prepared.all_reduce(array, op) if type(array) is np.ndarray else None
        if errand is None:
            return super().all_reduce(array, op, timeout_s, async_op)
        return self.collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def reduce(self, array: Array, op: ReduceOp, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into the root's array; those of the others keep their content."""
        errand = self.prepared.reduce(array, op, root)
        if errand is None:
            return super().reduce(array, op, root, timeout_s, async_op)
        return self.collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`."""
        errand = self.prepared.all_gather(parts, array)
        if errand is None:
            return super().all_gather(parts, array, timeout_s, async_op)
        return self.collective(errand.call.fingerprint, errand.keeping(parts[self.rank], array), timeout_s, async_op)

    def gather(
        self, parts: Sequence[Array] | None, array: Array, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy rank i's array into `parts[i]` of the root."""
        errand = self.prepared.gather(parts, array, root)
        if errand is None:
            return super().gather(parts, array, root, timeout_s, async_op)
        if parts is not None:
            errand = errand.keeping(parts[root], array)
        return self.collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def scatter(
        self, array: Array, parts: Sequence[Array] | None, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy `parts[i]` of the root into rank i's array."""
        errand = self.prepared.scatter(array, parts, root)
        if errand is None:
            return super().scatter(array, parts, root, timeout_s, async_op)
        if parts is not None:
            errand = errand.keeping(array, parts[root])
        return self.collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array."""
        errand = self.prepared.reduce_scatter(array, parts, op)
        if errand is None:
            return super().reduce_scatter(array, parts, op, timeout_s, async_op)
        return self.collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array], timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's `ins[j]` into rank j's `outs[i]`."""
        errand = self.prepared.all_to_all(outs, ins)
        if errand is None:
            return super().all_to_all(outs, ins, timeout_s, async_op)
        errand = errand.keeping(outs[self.rank], ins[self.rank])
        return self.collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def barrier(self, timeout_s: float, async_op: bool = False) -> Work:
        """Return once every rank has called."""
        errand = self.prepared.barrier
        return self.collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def carry_out(self, fingerprint: Fingerprint, body: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks at the board, and run the collective."""
        errand = body if isinstance(body, Errand) else Errand(Messages(fingerprint, body), None)
        self.meet_at_board(errand.call, errand.given, sequence, deadline)
        for target, source in errand.kept:
            if target is not source:
                target[...] = source.reshape(target.shape)

    def meet_at_board(self, call: Call, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare a call with those of the others, and carry it out."""
        board = self.board
        waited_ns = board.waited_ns
        call.offer(board, given)
        try:
            alike = board.exchange(sequence, call.about(self.rank), deadline)
        except TimeoutError as error:
            raise agreement.late(board, self.comm.context.global_ranks, deadline) from error
        if not alike:
            raise mismatch(self.comm, call.fingerprint, sequence, deadline)
        try:
            call.take(board, self.meet, deadline, given)
        except Unreadable as error:
            raise self.comm.unreadable(error) from error
        if board.waited_ns != waited_ns:
            self.comm.on_wait(board.waited_ns - waited_ns)

    def shortcuts(self, order: IssueOrder, sequence: Iterator[int], group: Caller) -> Shortcuts:
        """Return what does the plainest calls at the board."""
        return at_board(self.comm, self, order, sequence, group)

    def meet(self, deadline: Deadline) -> None:
        """Wait for everyone."""
        agreement.timely(self.board, self.comm.context.global_ranks, deadline)
