"""Collectives between hosts: small data goes with the comparison of the calls, large data straight to where it belongs,
and large reductions in segments, so that connections and processors are busy at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import (
    Array,
    Deadline,
    Fingerprint,
    ReduceOp,
    Work,
    accumulation_dtype,
    mismatch,
)
from rankwise.backends.shortcuts import Caller, Shortcuts
from rankwise.collective import derived
from rankwise.collective.algorithms.table import NETWORK, fitting
from rankwise.collective.fingerprint import counts, same_call
from rankwise.collective.issue_order import IssueOrder
from rankwise_gloo_tcp.collectives import streams
from rankwise_gloo_tcp.collectives.copying import assign, pieces
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, INLINE_NBYTES, Opening
from rankwise_gloo_tcp.collectives.plans import Along, OneShot, Plan
from rankwise_gloo_tcp.collectives.shortest import plainest
from rankwise_gloo_tcp.collectives.small import Small, SmallCall
from rankwise_gloo_tcp.collectives.ways import Ways
from rankwise_gloo_tcp.engine.engine import Engine

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["BetweenHosts", "travelling"]

Stream = Callable[[Engine, Array, ReduceOp, Deadline], None]

_NOTHING = memoryview(b"")
#: What accumulates in a wider dtype does so in pieces, each of which may have a copy.
_PIECE_NBYTES = 4 << 20


class BetweenHosts(Ways):
    """The ways of a group whose ranks share no memory."""

    def __init__(self, comm: GlooCommunicator) -> None:
        super().__init__(comm)
        self._opening = Opening(comm.engine, comm.rank, comm.size)
        self._none = [0] * comm.size
        self._small = Small(self._opening, comm.rank, comm.size)

    def choose(self, op: str, nbytes: int) -> str:
        """Return the algorithm of an operation; where a forced one is impossible, that of the table.

        Args:
            op: The operation.
            nbytes: How many bytes travel, in the dtype in which they do: something that all ranks know.
        """
        if self.size == 1:
            return "derived"  # the others have a peer
        name = self.comm.selection.choose(op, nbytes, self.size)
        along = name == "along" and (self.size > FEW_RANKS or nbytes > INLINE_NBYTES)
        if along or (name == "exchange" and self.size != 2) or (name == "streamed" and self.size > FEW_RANKS * 2):
            return fitting(op, nbytes, self.size, NETWORK).name
        return name

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's."""
        if type(array) is not np.ndarray or self.choose("broadcast", array.nbytes) == "derived":
            return super().broadcast(array, root, timeout_s, async_op)
        call = Fingerprint.of("broadcast", array, root=root)
        self._small.prepare_broadcast(call, array)
        plan = Along(dict.fromkeys(range(self.size), array) if self.rank == root else {}, {root: array})
        return self.collective(call, plan, timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce the arrays of all ranks, element by element, into everyone's array."""
        name = self.choose("all_reduce", travelling(array, op)) if type(array) is np.ndarray else "derived"
        if name == "derived":
            return super().all_reduce(array, op, timeout_s, async_op)
        call = Fingerprint.of("all_reduce", array, op)
        if name == "along":
            self._small.prepare_all_reduce(call, array, op)
            return self.collective(call, OneShot(array, op, [array] * self.size), timeout_s, async_op)
        stream = streams.exchange if name == "exchange" else streams.all_reduce
        return self.collective(call, partial(_all_reduce, self.comm, stream, array, op), timeout_s, async_op)

    def reduce(self, array: Array, op: ReduceOp, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into the root's array; those of the others keep their content."""
        if self.choose("reduce", travelling(array, op)) == "derived":
            return super().reduce(array, op, root, timeout_s, async_op)
        call = Fingerprint.of("reduce", array, op, root)
        return self.collective(call, OneShot(array, op, [array] * self.size, root), timeout_s, async_op)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`."""
        if self._derives("all_gather"):
            return super().all_gather(parts, array, timeout_s, async_op)
        plan = Along(dict.fromkeys(range(self.size), array), dict(enumerate(parts)))
        return self.collective(Fingerprint.of("all_gather", array, parts=parts), plan, timeout_s, async_op)

    def gather(
        self, parts: Sequence[Array] | None, array: Array, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy rank i's array into `parts[i]` of the root; `parts` is None elsewhere."""
        if self._derives("gather"):
            return super().gather(parts, array, root, timeout_s, async_op)
        call = Fingerprint.of("gather", array, root=root, sent={root: array}, received=parts)
        return self.collective(call, Along({root: array}, dict(enumerate(parts or ()))), timeout_s, async_op)

    def scatter(
        self, array: Array, parts: Sequence[Array] | None, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy `parts[i]` of the root into rank i's array; `parts` is None elsewhere."""
        if self._derives("scatter"):
            return super().scatter(array, parts, root, timeout_s, async_op)
        call = Fingerprint.of("scatter", array, root=root, sent=parts, received={root: array})
        return self.collective(call, Along(dict(enumerate(parts or ())), {root: array}), timeout_s, async_op)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array. The parts keep their content."""
        name = self.choose("reduce_scatter", sum(travelling(part, op) for part in parts))
        if name == "derived":
            return super().reduce_scatter(array, parts, op, timeout_s, async_op)
        call = Fingerprint.of("reduce_scatter", array, op, parts=parts)
        if name == "along":
            return self.collective(call, OneShot(array, op, parts), timeout_s, async_op)
        return self.collective(call, partial(_reduce_scatter, self.comm, array, parts, op), timeout_s, async_op)

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array], timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's `ins[j]` into rank j's `outs[i]`."""
        if self._derives("all_to_all"):
            return super().all_to_all(outs, ins, timeout_s, async_op)
        call = Fingerprint.of("all_to_all", ins[self.rank], sent=ins, received=outs)
        return self.collective(call, Along(dict(enumerate(ins)), dict(enumerate(outs))), timeout_s, async_op)

    def _derives(self, op: str) -> bool:
        # A rank may know only the sizes of its own parts: only the number of ranks may decide.
        return self.size > FEW_RANKS or self.choose(op, 0) == "derived"

    def shortcuts(self, order: IssueOrder, sequence: Iterator[int], group: Caller) -> Shortcuts:
        """Return what does the plainest small calls in one go."""
        if not 1 < self.size <= FEW_RANKS:
            return Shortcuts()
        small = self._small
        barrier = small.barrier if self.choose("barrier", 0) == "along" else None
        made = plainest(self.comm, small.calls, barrier, self._meet, order, sequence, group)
        return made if barrier is not None else replace(made, barrier=Shortcuts().barrier)

    def _meet(self, call: SmallCall, given: Any, sequence: int, deadline: Deadline) -> None:
        """Carry a small call out that has been prepared."""
        if not self._small.meet(call, given, sequence, deadline):
            raise mismatch(self.comm, call.fingerprint, sequence, deadline)

    def carry_out(self, fingerprint: Fingerprint, body: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, with small data along, and run the collective."""
        if self.size > FEW_RANKS:
            super().carry_out(fingerprint, body, sequence, deadline)
            return
        planned = isinstance(body, Plan)
        offered, expected = (body.offer(self), body.expect(self)) if planned else ([_NOTHING] * self.size, self._none)
        record = fingerprint.record(self.rank, sequence)
        rows, contents = self._opening.exchange(record, offered, expected, deadline)
        if not same_call(rows):
            raise mismatch(self.comm, fingerprint, sequence, deadline)
        if planned:
            body.take(self, contents, deadline)
        else:
            body(deadline, counts(rows))


def _all_reduce(
    us: GlooCommunicator, stream: Stream, array: Array, op: ReduceOp, deadline: Deadline, counts: object
) -> None:
    if accumulation_dtype(op.name, array.dtype) == array.dtype and op.factor is None:
        stream(us.engine, array.reshape(-1), op, deadline)
        return
    adding = ReduceOp.SUM if op.name in ("AVG", "PREMUL_SUM") else op
    for piece in pieces(array.reshape(-1), _PIECE_NBYTES):
        total = op.accumulator(piece)
        stream(us.engine, total, adding, deadline)
        op.finish(total, piece, us.size)


def _reduce_scatter(
    us: GlooCommunicator, array: Array, parts: Sequence[Array], op: ReduceOp, deadline: Deadline, counts: object
) -> None:
    if op.factor is not None or accumulation_dtype(op.name, array.dtype) != array.dtype:
        derived.reduce_scatter(us, array, parts, op, deadline)
        return
    flat = array.reshape(-1)
    assign(flat, parts[us.rank].reshape(-1))
    streams.reduce_scatter(us.engine, flat, [part.reshape(-1) for part in parts], op, deadline)
    if op.name == "AVG":
        op.finish(flat, flat, us.size)


def travelling(array: Array, op: ReduceOp) -> int:
    """Return how many bytes of an array travel: a factor is multiplied in before, in the dtype of the sum."""
    if op.factor is None:
        return int(array.nbytes)
    return int(array.size * accumulation_dtype(op.name, array.dtype).itemsize)
