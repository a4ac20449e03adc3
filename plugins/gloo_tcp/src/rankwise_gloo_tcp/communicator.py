"""The communicator: point-to-point calls straight from the engine; collectives at the board where all ranks are on one
machine, and by the core's algorithms over messages elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankwise.backends import Array, Communicator, Context, Deadline, Fingerprint, ReduceOp, Work, mismatch
from rankwise.backends.shortcuts import Caller, Shortcuts
from rankwise.basics.arrays import is_sparse
from rankwise.errors import (
    DistError,
    PeerDiedError,
)
from rankwise_gloo_tcp.board import agreement
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import Call, Errand, Messages
from rankwise_gloo_tcp.board.compiled import make_shortcuts
from rankwise_gloo_tcp.board.prepared import Prepared
from rankwise_gloo_tcp.collectives import sparse, staging
from rankwise_gloo_tcp.collectives.between_hosts import NetworkCommunicator
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.protocol.frames import notice, read_notice

__all__ = ["GlooCommunicator"]


class GlooCommunicator(NetworkCommunicator):
    """One live group."""

    engine: Engine

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.board: Board | None = None
        self.can_read = False
        self.pids: list[int] = []
        #: The calls at the board, where there is one.
        self.prepared: Prepared | None = None

    def start(self, engine: Engine) -> None:
        """Begin to use an engine, which this communicator closes."""
        self.engine = engine
        engine.in_background = self._order.serves_here

    def start_board(self, board: Board, pids: list[int]) -> None:
        """Begin to use a board, which this communicator closes."""
        context = self.context
        self.board, self.pids, self.prepared = board, pids, Prepared(board)
        self.engine.on_abort = lambda error: board.give_up(notice(error, context.global_ranks[self.rank]))

    # ------------------------------------------------------------------ the contract

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send."""
        return self.engine.send(array, dst, tag)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive."""
        return self.engine.receive(array, src, tag)

    def send(self, array: Array, dst: int, tag: int, timeout_s: float) -> None:
        """Send, on the caller's own thread."""
        if self.engine.send_at_once(array, dst, tag):
            return
        self._finish(self.engine.send(array, dst, tag, waited=True), "send to", dst, timeout_s)

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive on the caller's own thread, and return the sender's group rank."""
        if src is not None and self.engine.receive_at_once(array, src, tag):
            return src
        request = self.engine.receive(array, src, tag, waited=True)
        self._finish(request, "recv from", src, timeout_s)
        return request.source_rank()

    def close(self) -> None:
        """Say good-bye to the peers, and give everything back."""
        if self.board is not None and self.failure is None:
            self.board.leave()
        try:
            self.engine.close()
        finally:
            board, self.board, self.prepared, self._opening = self.board, None, None, None
            self.engine.on_abort = None
            if board is not None:
                board.close()

    def abort(self, error: DistError) -> None:
        """End what is pending here, and tell the peers why."""
        self.engine.abort(error)

    # ------------------------------------------------------------------ collectives on one machine

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's."""
        if type(array) is not np.ndarray:
            return self._collective(*staging.broadcast(self, array, root), timeout_s, async_op)
        errand = None if self.prepared is None else self.prepared.broadcast(array, root)
        if errand is None:
            return self._elsewhere.broadcast(array, root, timeout_s, async_op)
        return self._collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce the arrays of all ranks, element by element, into everyone's array."""
        if type(array) is not np.ndarray:
            how = sparse.all_reduce(self, array) if is_sparse(array) else staging.all_reduce(self, array, op)
            return self._collective(*how, timeout_s, async_op)
        errand = None if self.prepared is None else self.prepared.all_reduce(array, op)
        if errand is None:
            return self._elsewhere.all_reduce(array, op, timeout_s, async_op)
        return self._collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def reduce(self, array: Array, op: ReduceOp, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into the root's array; those of the others keep their content."""
        errand = None if self.prepared is None else self.prepared.reduce(array, op, root)
        if errand is None:
            return self._elsewhere.reduce(array, op, root, timeout_s, async_op)
        return self._collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`."""
        errand = None if self.prepared is None else self.prepared.all_gather(parts, array)
        if errand is None:
            return self._elsewhere.all_gather(parts, array, timeout_s, async_op)
        return self._collective(errand.call.fingerprint, errand.keeping(parts[self.rank], array), timeout_s, async_op)

    def gather(
        self, parts: Sequence[Array] | None, array: Array, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy rank i's array into `parts[i]` of the root."""
        errand = None if self.prepared is None else self.prepared.gather(parts, array, root)
        if errand is None:
            return self._elsewhere.gather(parts, array, root, timeout_s, async_op)
        if parts is not None:
            errand = errand.keeping(parts[root], array)
        return self._collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def scatter(
        self, array: Array, parts: Sequence[Array] | None, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy `parts[i]` of the root into rank i's array."""
        errand = None if self.prepared is None else self.prepared.scatter(array, parts, root)
        if errand is None:
            return self._elsewhere.scatter(array, parts, root, timeout_s, async_op)
        if parts is not None:
            errand = errand.keeping(array, parts[root])
        return self._collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array."""
        errand = None if self.prepared is None else self.prepared.reduce_scatter(array, parts, op)
        if errand is None:
            return self._elsewhere.reduce_scatter(array, parts, op, timeout_s, async_op)
        return self._collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array], timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's `ins[j]` into rank j's `outs[i]`."""
        errand = None if self.prepared is None else self.prepared.all_to_all(outs, ins)
        if errand is None:
            return self._elsewhere.all_to_all(outs, ins, timeout_s, async_op)
        errand = errand.keeping(outs[self.rank], ins[self.rank])
        return self._collective(errand.call.fingerprint, errand, timeout_s, async_op)

    def barrier(self, timeout_s: float, async_op: bool = False) -> Work:
        """Return once every rank has called."""
        if self.prepared is None:
            return super().barrier(timeout_s, async_op)
        errand = self.prepared.barrier
        return self._collective(errand.call.fingerprint, errand, timeout_s, async_op)

    @property
    def _elsewhere(self) -> Communicator:
        """What runs the collectives that do not go by the board: the core's, once the board has compared the calls."""
        found: Any = super() if self.prepared is None else super(NetworkCommunicator, self)
        return found  # type: ignore[no-any-return]  # no type says that `super()` has the methods of a class

    # ------------------------------------------------------------------ at the board

    def meet(self, deadline: Deadline) -> None:
        """Wait for everyone."""
        assert self.board is not None
        agreement.timely(self.board, self.context.global_ranks, deadline)

    def look(self) -> None:
        """Take in news while waiting at the board.

        Raises:
            DistError: The group has failed.
        """
        self.engine.look()
        board = self.board
        if board is not None and self.failure is None:
            said = board.given_up()
            if said is not None:
                self.fail(read_notice(said[1]))
            for peer in board.late():
                if board.has_left(peer):
                    host = self.engine.peers[peer].card.host
                    name = self.context.global_ranks[peer]
                    self.fail(PeerDiedError(name, host, "it has destroyed the group"))
        if self.failure is not None:
            raise self.failure

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return what does the plainest calls at the board."""
        if self.prepared is None:
            return Shortcuts()
        return make_shortcuts(self, self.prepared, self._order, self._sequence, group)

    # ------------------------------------------------------------------ running

    def _carry_out(self, fingerprint: Fingerprint, body: Any, sequence: int, deadline: Deadline) -> None:
        board = self.board
        if board is None:
            super()._carry_out(fingerprint, body, sequence, deadline)
            return
        errand = body if isinstance(body, Errand) else Errand(Messages(fingerprint, body), None)
        self.meet_at_board(errand.call, errand.given, sequence, deadline)
        for target, source in errand.kept:
            if target is not source:
                target[...] = source.reshape(target.shape)

    def meet_at_board(self, call: Call, given: Any, sequence: int, deadline: Deadline) -> None:
        """Carry out a call there."""
        board = self.board
        assert board is not None
        call.offer(board, given)
        try:
            alike = board.exchange(sequence, call.about(self.rank), deadline)
        except TimeoutError as error:
            raise agreement.late(board, self.context.global_ranks, deadline) from error
        if not alike:
            raise mismatch(self, call.fingerprint, sequence, deadline)
        call.take(board, self.meet, deadline, given)
