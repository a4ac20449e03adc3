"""Collectives of ranks on one host, at the board that they share.

What does not fit through the board goes by messages, once the board has compared the calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import Call, Caller, Deadline, IssueOrder, Shortcuts, mismatch
from rankwise_gloo_tcp.board import agreement
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import BoardCall, Errand, Messages
from rankwise_gloo_tcp.board.moving import Unreadable
from rankwise_gloo_tcp.board.prepared import PREPARE, Prepared
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

    def algorithm(self, call: Call) -> Any:
        """Return the errand of a call at the board, or what goes by messages."""
        plain = call.array is None or type(call.array) is np.ndarray
        return (self.prepared.prepare(call) if plain else None) or super().algorithm(call)

    def own_collectives(self) -> Collection[str]:
        """Return those that go by the board."""
        return PREPARE

    def compare_and_run(self, call: Call, algorithm: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks at the board, and run the collective."""
        errand = algorithm if isinstance(algorithm, Errand) else Errand(Messages(call.fingerprint, algorithm), None)
        self.meet_at_board(errand.call, errand.given, sequence, deadline)
        for target, source in errand.kept:
            if target is not source:
                target[...] = source.reshape(target.shape)

    def meet_at_board(self, call: BoardCall, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare a call with those of the others, and carry it out."""
        board = self.board
        waited_ns = board.waited_ns
        call.offer(board, given)
        try:
            alike = board.exchange(sequence, call.about(self.rank), deadline)
        except TimeoutError:
            raise agreement.late(board, self.comm.context.global_ranks, deadline) from None
        if not alike:
            raise mismatch(self.comm, call.fingerprint, sequence, deadline)
        try:
            call.take(board, self.meet, deadline, given)
        except Unreadable:
            raise self.comm.unreadable() from None
        if board.waited_ns != waited_ns:
            self.comm.on_wait(board.waited_ns - waited_ns)

    def shortcuts(self, order: IssueOrder, sequence: Iterator[int], group: Caller) -> Shortcuts:
        """Return what does the plainest calls at the board."""
        return at_board(self.comm, self, order, sequence, group)

    def meet(self, deadline: Deadline) -> None:
        """Wait for everyone."""
        agreement.timely(self.board, self.comm.context.global_ranks, deadline)
