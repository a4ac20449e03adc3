"""The communicator: point-to-point calls straight from the engine; collectives at the board where all ranks are on one
machine, and by the core's algorithms over messages elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rankwise import derived
from rankwise.arrays import Array
from rankwise.contract import Communicator, Context
from rankwise.deadline import Deadline
from rankwise.errors import (
    CollectiveMismatchError,
    DistError,
    DistTimeoutError,
    GroupAbortedError,
    PeerDiedError,
)
from rankwise.fingerprint import Fingerprint, counts, mismatch, same_call
from rankwise.reduce_op import ReduceOp
from rankwise.work import Work
from rankwise_gloo_tcp import agreement, plans
from rankwise_gloo_tcp.board import Board
from rankwise_gloo_tcp.engine import Engine
from rankwise_gloo_tcp.plans import PIECE_NBYTES, Messages, Plan, Pull
from rankwise_gloo_tcp.wire import notice, read_notice

__all__ = ["GlooCommunicator"]


class GlooCommunicator(Communicator):
    """One live group."""

    engine: Engine

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.board: Board | None = None
        self.can_read = False
        self.pids: list[int] = []
        self._scratch: Array | None = None

    def start(self, engine: Engine) -> None:
        """Begin to use an engine, which this communicator closes."""
        self.engine = engine

    def start_board(self, board: Board, pids: list[int]) -> None:
        """Begin to use a board, which this communicator closes."""
        self.board, self.pids = board, pids
        self.engine.on_abort = lambda error: board.give_up(notice(error))

    # ------------------------------------------------------------------ the contract

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send."""
        return self.engine.send(array, dst, tag)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive."""
        return self.engine.receive(array, src, tag)

    def send(self, array: Array, dst: int, tag: int, timeout_s: float) -> None:
        """Send, on the caller's own thread."""
        self.engine.send(array, dst, tag, waited=True).wait(timeout_s)

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive on the caller's own thread, and return the sender's group rank."""
        request = self.engine.receive(array, src, tag, waited=True)
        try:
            request.wait(timeout_s)
        except DistTimeoutError as error:
            # A receive that nobody waits for would swallow the next message.
            if not request.cancel():
                self.fail(error)
            raise
        return request.source_rank()

    def close(self) -> None:
        """Say good-bye to the peers, and give everything back."""
        if self.board is not None and self.failure is None:
            self.board.leave()
        try:
            self.engine.close()
        finally:
            board, self.board = self.board, None
            self.engine.on_abort = None
            if board is not None:
                board.close()

    def abort(self, error: DistError) -> None:
        """End what is pending here, and tell the peers why."""
        self.engine.abort(error)

    # ------------------------------------------------------------------ collectives on one machine

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's."""
        if self.board is None:
            return super().broadcast(array, root, timeout_s, async_op)
        offered: Sequence[Array | None] = [array] * self.size if self.rank == root else []
        wanted = [] if self.rank == root else [(root, array)]
        plan = Pull(offered, wanted, lambda deadline, counts: derived.broadcast(self, array, root, deadline))
        return self._shared(Fingerprint.of("broadcast", array, root=root), plan, timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce the arrays of all ranks, element by element, into everyone's array."""
        if self.board is None:
            return super().all_reduce(array, op, timeout_s, async_op)
        plan = plans.all_reduce(array, op, self.size, self.can_read)
        return self._shared(Fingerprint.of("all_reduce", array, op), plan, timeout_s, async_op)

    def reduce(self, array: Array, op: ReduceOp, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into the root's array; those of the others keep their content."""
        plan = None if self.board is None else plans.reduce(array, op, root, self.size)
        if plan is None:
            return super().reduce(array, op, root, timeout_s, async_op)
        return self._shared(Fingerprint.of("reduce", array, op, root), plan, timeout_s, async_op)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`."""
        if self.board is None:
            return super().all_gather(parts, array, timeout_s, async_op)
        plan = Pull(
            [array] * self.size,
            list(enumerate(parts)),
            lambda deadline, counts: derived.all_gather(self, parts, array, deadline),
            done=partial(_assign, parts[self.rank], array),
        )
        return self._shared(Fingerprint.of("all_gather", array, parts=parts), plan, timeout_s, async_op)

    def gather(
        self, parts: Sequence[Array] | None, array: Array, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy rank i's array into `parts[i]` of the root."""
        if self.board is None:
            return super().gather(parts, array, root, timeout_s, async_op)
        offered = [array if peer == root else None for peer in range(self.size)]
        plan = Pull(
            offered,
            list(enumerate(parts or ())),
            lambda deadline, counts: derived.gather(self, parts, array, root, counts, deadline),
            done=None if parts is None else partial(_assign, parts[root], array),
        )
        call = Fingerprint.of("gather", array, root=root, sent={root: array}, received=parts)
        return self._shared(call, plan, timeout_s, async_op)

    def scatter(
        self, array: Array, parts: Sequence[Array] | None, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy `parts[i]` of the root into rank i's array."""
        if self.board is None:
            return super().scatter(array, parts, root, timeout_s, async_op)
        plan = Pull(
            parts or (),
            [(root, array)],
            lambda deadline, counts: derived.scatter(self, array, parts, root, counts, deadline),
            done=None if parts is None else partial(_assign, array, parts[root]),
        )
        call = Fingerprint.of("scatter", array, root=root, sent=parts, received={root: array})
        return self._shared(call, plan, timeout_s, async_op)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array."""
        if self.board is None or op.factor is not None:
            return super().reduce_scatter(array, parts, op, timeout_s, async_op)
        total = op.accumulator(parts[self.rank])
        plan = Pull(
            parts,
            [((self.rank + k) % self.size, total) for k in range(1, self.size)],
            lambda deadline, counts: derived.reduce_scatter(self, array, parts, op, deadline),
            op,
            lambda: op.finish(total, array, self.size),
        )
        return self._shared(Fingerprint.of("reduce_scatter", array, op, parts=parts), plan, timeout_s, async_op)

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array], timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's `ins[j]` into rank j's `outs[i]`."""
        if self.board is None:
            return super().all_to_all(outs, ins, timeout_s, async_op)
        plan = Pull(
            ins,
            list(enumerate(outs)),
            lambda deadline, counts: derived.all_to_all(self, outs, ins, deadline),
            done=partial(_assign, outs[self.rank], ins[self.rank]),
        )
        call = Fingerprint.of("all_to_all", ins[self.rank], sent=ins, received=outs)
        return self._shared(call, plan, timeout_s, async_op)

    # ------------------------------------------------------------------ what plans need

    @property
    def scratch(self) -> Array:
        """Memory to read a piece into before it is combined."""
        if self._scratch is None:
            self._scratch = np.empty(PIECE_NBYTES, np.uint8)
        return self._scratch

    def areas(self) -> list[Array]:
        """Return everyone's area for the next use."""
        assert self.board is not None  # plans are made with a board only
        return self.board.areas()

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
                self.fail(read_notice(said[1], self.context.global_ranks[said[0]]))
            for peer in board.late():
                if board.has_left(peer):
                    host = self.engine.peers[peer].card.host
                    name = self.context.global_ranks[peer]
                    self.fail(PeerDiedError(name, host, "it has destroyed the group"))
        if self.failure is not None:
            raise self.failure

    # ------------------------------------------------------------------ running

    def _shared(self, call: Fingerprint, plan: Plan, timeout_s: float, async_op: bool) -> Work:
        return self._collective(call, plan, timeout_s, async_op)

    def _run(self, fingerprint: Fingerprint, body: Any, deadline: Deadline) -> None:
        if self.board is None:
            super()._run(fingerprint, body, deadline)
            return
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        sequence = next(self._sequence)
        plan = body if isinstance(body, Plan) else Messages(body)
        try:
            self._carry_out(fingerprint, plan, sequence, deadline)
        except CollectiveMismatchError:
            raise  # all ranks know, nothing has moved: the group is as good as before
        except DistTimeoutError as error:
            late = DistTimeoutError(f"{self._title(fingerprint, sequence)}: {error}")
            self.fail(late)
            raise late from error
        except DistError as error:
            self.fail(error)
            raise
        except BaseException as error:
            title = self._title(fingerprint, sequence)
            self.fail(GroupAbortedError(f"{title} was broken off by {type(error).__name__} on this rank"))
            raise

    def _carry_out(self, call: Fingerprint, plan: Plan, sequence: int, deadline: Deadline) -> None:
        board = self.board
        if board is None:
            raise GroupAbortedError(f"group {self.context.name!r} has been destroyed")
        plan.offer(self)
        record = call.record(self.rank, sequence)
        rows = agreement.compare(board, record, self.context.global_ranks, deadline)
        if not same_call(rows):
            raise mismatch(self, call, sequence, deadline)
        plan.take(self, lambda: counts(rows), deadline)


def _assign(target: Array, source: Array) -> None:
    if target is not source:
        target[...] = source.reshape(target.shape)
