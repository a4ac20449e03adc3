"""Collectives of ranks on one host, at the board that they share.

What does not fit through the board goes by messages, once the board has compared the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rankwise.backends import Call, Deadline, Prepared, mismatch
from rankwise_gloo_tcp.board import agreement
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import BoardCall, MessageCall
from rankwise_gloo_tcp.board.prepared import BoardKinds, Kept, Kind
from rankwise_gloo_tcp.collectives.strategy import Strategy

if TYPE_CHECKING:
    from rankwise_gloo_tcp.collectives.hierarchy import Hosts
    from rankwise_gloo_tcp.collectives.means import Means
    from rankwise_gloo_tcp.communicator import GlooCommunicator


def _nothing(call: Call) -> None:
    """Give nothing."""


class OneHost(Strategy):
    """The strategy of a group whose ranks share a board."""

    __slots__ = ("_hosts", "_kinds", "board")

    def __init__(self, comm: GlooCommunicator, board: Board) -> None:
        super().__init__(comm)
        self.board, self._kinds = board, BoardKinds(board)
        self._hosts: Hosts | None = None

    @property
    def hosts(self) -> Hosts:
        """Where the ranks are: all of them here."""
        if self._hosts is None:
            from rankwise_gloo_tcp.collectives.hierarchy import Hosts  # of which only what is described knows

            self._hosts = Hosts(self.comm, [range(self.size)])
        return self._hosts

    def means(self, deadline: Deadline) -> Means:
        """Return what moves data at the board within a call, until a deadline."""
        from rankwise_gloo_tcp.collectives.means import Within

        return Within(self.comm, deadline)

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does calls of this kind at the board."""
        kind = self._kinds.prepare(call)
        return None if kind is None else self.at_board(kind)

    def at_board(self, kind: Kind) -> Prepared:
        """Return what does a kind of call."""
        return AtBoard(self, *kind)

    def compare_and_run(self, call: Call, algorithm: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks at the board, and run the collective by messages."""
        AtBoard(self, MessageCall(call.fingerprint, algorithm)).run(None, sequence, deadline)

    def meet(self, deadline: Deadline, *numbers: int) -> None:
        """Tell some numbers, if any, and wait for everyone."""
        agreement.timely(self.board, self.comm.context.global_ranks, deadline, *numbers)


class AtBoard:
    """One kind of call at a board.

    Args:
        strategy: That of the group.
        call: What is done.
        given: Returns of a `Call` what that takes.
        kept: Returns of a `Call` what this rank copies for itself in the end.
    """

    def __init__(
        self,
        strategy: OneHost,
        call: BoardCall,
        given: Callable[[Call], Any] = _nothing,
        kept: Callable[[Call], Kept] | None = None,
    ) -> None:
        self.fingerprint, self.call, self._given, self._kept = call.fingerprint, call, given, kept
        self._strategy, self._comm, self._board = strategy, strategy.comm, strategy.board
        #: What the ranks compare; as long as it is this object the board does not write it anew.
        self.about = call.about(strategy.rank)
        #: Of a call that tells more than its kind does.
        self._told = None if type(call).told is BoardCall.told else call.told

    def bind(self, call: Call) -> Any:
        """Return the arrays of a call."""
        given = self._given(call)
        return given if self._kept is None else (given, self._kept(call))

    def bound(self, given: Any) -> Callable[[int, Deadline], None]:
        """Return what runs a call on the same arrays again and again."""
        board, comm, fingerprint = self._board, self._comm, self.fingerprint
        trade = self.call.bound(board, self.about, given)
        if trade is None:
            return partial(self.run, given)

        def run(sequence: int, deadline: Deadline) -> None:
            waited_ns = board.waited_ns
            try:
                alike = trade(sequence, deadline)
            except TimeoutError:
                raise agreement.late(board, comm.context.global_ranks, deadline) from None
            if not alike:
                raise mismatch(comm, fingerprint, sequence, deadline)
            if board.waited_ns != waited_ns:
                comm.on_wait(board.waited_ns - waited_ns)

        return run

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare a call with those of the others, and carry it out."""
        board, call, kept = self._board, self.call, None
        if self._kept is not None:
            given, kept = given
        waited_ns = board.waited_ns
        call.offer(board, given)
        try:
            alike = board.exchange(sequence, self.about if self._told is None else self._told(self.about), deadline)
        except TimeoutError:
            raise agreement.late(board, self._comm.context.global_ranks, deadline) from None
        if not alike:
            raise mismatch(self._comm, self.fingerprint, sequence, deadline)
        call.take(board, self._strategy.meet, deadline, given)
        if board.waited_ns != waited_ns:
            self._comm.on_wait(board.waited_ns - waited_ns)
        if kept is not None:
            target, source = kept
            if target is not source:
                target[...] = source.reshape(target.shape)
