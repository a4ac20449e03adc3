"""Collectives between hosts: small data goes with the comparison of the calls, large data straight to where it belongs,
and large reductions in segments, so that connections and processors are busy at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from rankwise.backends import (
    COLLECTIVE_TAG,
    Array,
    Communicator,
    Deadline,
    Fingerprint,
    ReduceOp,
    Work,
    accumulation_dtype,
    as_bytes,
    mismatch,
)
from rankwise.collective import derived
from rankwise.collective.algorithms.table import NETWORK, fitting
from rankwise.collective.fingerprint import counts, same_call
from rankwise_gloo_tcp.collectives import streams
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, INLINE_NBYTES, Opening
from rankwise_gloo_tcp.collectives.selection import Selection
from rankwise_gloo_tcp.engine.engine import Engine

__all__ = ["NetworkCommunicator"]

Stream = Callable[[Engine, Array, ReduceOp, Deadline], None]

_NOTHING = memoryview(b"")
#: What accumulates in a wider dtype does so in pieces, each of which may have a copy.
_PIECE_NBYTES = 4 << 20


class NetworkCommunicator(Communicator):
    """The collectives of a group whose ranks share no memory."""

    engine: Engine
    selection = Selection({})
    _opening: Opening | None = None

    def choose(self, op: str, nbytes: int) -> str:
        """Return the algorithm of an operation; where a forced one is impossible, that of the table."""
        if self.size == 1:
            return "derived"  # the others have a peer
        name = self.selection.choose(op, nbytes, self.size)
        along = name == "along" and (self.size > FEW_RANKS or nbytes > INLINE_NBYTES)
        if along or (name == "exchange" and self.size != 2) or (name == "streamed" and self.size > FEW_RANKS * 2):
            return fitting(op, nbytes, self.size, NETWORK).name
        return name

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's."""
        if self.choose("broadcast", array.nbytes) == "derived":
            return super().broadcast(array, root, timeout_s, async_op)
        plan = Along(dict.fromkeys(range(self.size), array) if self.rank == root else {}, {root: array})
        return self._collective(Fingerprint.of("broadcast", array, root=root), plan, timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce the arrays of all ranks, element by element, into everyone's array."""
        name = self.choose("all_reduce", array.nbytes)
        if name == "derived":
            return super().all_reduce(array, op, timeout_s, async_op)
        call = Fingerprint.of("all_reduce", array, op)
        if name == "along":
            return self._collective(call, OneShot(array, op, [array] * self.size), timeout_s, async_op)
        stream = streams.exchange if name == "exchange" else streams.all_reduce
        return self._collective(call, partial(_all_reduce, self, stream, array, op), timeout_s, async_op)

    def reduce(self, array: Array, op: ReduceOp, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into the root's array; those of the others keep their content."""
        if self.choose("reduce", array.nbytes) == "derived":
            return super().reduce(array, op, root, timeout_s, async_op)
        call = Fingerprint.of("reduce", array, op, root)
        return self._collective(call, OneShot(array, op, [array] * self.size, root), timeout_s, async_op)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`."""
        if self._derives("all_gather"):
            return super().all_gather(parts, array, timeout_s, async_op)
        plan = Along(dict.fromkeys(range(self.size), array), dict(enumerate(parts)))
        return self._collective(Fingerprint.of("all_gather", array, parts=parts), plan, timeout_s, async_op)

    def gather(
        self, parts: Sequence[Array] | None, array: Array, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy rank i's array into `parts[i]` of the root; `parts` is None elsewhere."""
        if self._derives("gather"):
            return super().gather(parts, array, root, timeout_s, async_op)
        call = Fingerprint.of("gather", array, root=root, sent={root: array}, received=parts)
        return self._collective(call, Along({root: array}, dict(enumerate(parts or ()))), timeout_s, async_op)

    def scatter(
        self, array: Array, parts: Sequence[Array] | None, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy `parts[i]` of the root into rank i's array; `parts` is None elsewhere."""
        if self._derives("scatter"):
            return super().scatter(array, parts, root, timeout_s, async_op)
        call = Fingerprint.of("scatter", array, root=root, sent=parts, received={root: array})
        return self._collective(call, Along(dict(enumerate(parts or ())), {root: array}), timeout_s, async_op)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array. The parts keep their content."""
        name = self.choose("reduce_scatter", sum(part.nbytes for part in parts))
        if name == "derived":
            return super().reduce_scatter(array, parts, op, timeout_s, async_op)
        call = Fingerprint.of("reduce_scatter", array, op, parts=parts)
        if name == "along":
            return self._collective(call, OneShot(array, op, parts), timeout_s, async_op)
        return self._collective(call, partial(_reduce_scatter, self, array, parts, op), timeout_s, async_op)

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array], timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's `ins[j]` into rank j's `outs[i]`."""
        if self._derives("all_to_all"):
            return super().all_to_all(outs, ins, timeout_s, async_op)
        call = Fingerprint.of("all_to_all", ins[self.rank], sent=ins, received=outs)
        return self._collective(call, Along(dict(enumerate(ins)), dict(enumerate(outs))), timeout_s, async_op)

    def _derives(self, op: str) -> bool:
        # Each rank may know the sizes of its own parts alone: only the number of ranks may choose.
        return self.size > FEW_RANKS or self.choose(op, 0) == "derived"

    def _carry_out(self, fingerprint: Fingerprint, body: Any, sequence: int, deadline: Deadline) -> None:
        if self.size > FEW_RANKS:
            super()._carry_out(fingerprint, body, sequence, deadline)
            return
        if self._opening is None:
            self._opening = Opening(self.engine, self.rank, self.size)
        offered = body.offer(self) if isinstance(body, Plan) else None
        record = fingerprint.record(self.rank, sequence)
        rows, contents = self._opening.exchange(record, offered, deadline)
        if not same_call(rows):
            raise mismatch(self, fingerprint, sequence, deadline)
        if isinstance(body, Plan):
            body.take(self, contents, deadline)
        else:
            body(deadline, counts(rows))


class Plan:
    """A collective whose data, or some of it, goes with the opening."""

    def offer(self, us: NetworkCommunicator) -> list[memoryview]:
        """Return what goes to each rank."""
        raise NotImplementedError

    def take(self, us: NetworkCommunicator, contents: list[memoryview], deadline: Deadline) -> None:
        """Finish, now that all have made the same call and their data is here."""
        raise NotImplementedError

    def __call__(self, deadline: Deadline, counts: Sequence[int]) -> None:
        """Do it without an opening."""
        raise NotImplementedError


class OneShot(Plan):
    """Everyone gets the contributions of all, and reduces them in the order of ranks.

    Args:
        out: Where the result goes.
        op: How to reduce.
        parts: What each rank gets as this one's contribution.
        root: Who alone reduces, or -1.
    """

    def __init__(self, out: Array, op: ReduceOp, parts: Sequence[Array], root: int = -1) -> None:
        self.out, self.op, self.root = out, op, root
        # The factor is each rank's own; a wider accumulator is made by whoever reduces.
        made = {id(part): part.reshape(-1) if op.factor is None else op.accumulator(part) for part in parts}
        self.parts = [made[id(part)] for part in parts]

    def offer(self, us: NetworkCommunicator) -> list[memoryview]:
        views = {id(part): as_bytes(part) for part in self.parts}
        return [
            views[id(part)] if self.root in (-1, peer) and peer != us.rank else _NOTHING
            for peer, part in enumerate(self.parts)
        ]

    def take(self, us: NetworkCommunicator, contents: list[memoryview], deadline: Deadline) -> None:
        if self.root not in (-1, us.rank):
            return
        op, mine, out = self.op, self.parts[us.rank], self.out.reshape(-1)
        wide = accumulation_dtype(op.name, mine.dtype)
        arrays = [np.frombuffer(content, np.uint8).view(mine.dtype) for content in contents]
        arrays[us.rank] = mine
        if wide != out.dtype or op.name in ("AVG", "PREMUL_SUM"):
            total = arrays[0].astype(wide)
            for array in arrays[1:]:
                op.combine(total, array)
            op.finish(total, self.out, us.size)
            return
        if us.size == 2 and np.may_share_memory(out, mine):
            op.combine(out, arrays[1 - us.rank], us.rank == 1)
            return
        mine = mine.copy() if us.rank and np.may_share_memory(out, mine) else mine
        arrays[us.rank] = mine
        _assign(out, arrays[0])
        for array in arrays[1:]:
            op.combine(out, array)


class Along(Plan):
    """Everyone gets something of some others: with the opening if it is small, alone if it is not.

    Args:
        offered: What each rank gets of this one.
        wanted: Where to put what comes from each rank.
    """

    def __init__(self, offered: dict[int, Array], wanted: dict[int, Array]) -> None:
        self.offered, self.wanted = offered, wanted

    def offer(self, us: NetworkCommunicator) -> list[memoryview]:
        views = [_NOTHING] * us.size
        made = {id(array): as_bytes(array) for array in self.offered.values() if array.nbytes <= INLINE_NBYTES}
        for peer, array in self.offered.items():
            if peer != us.rank and array.nbytes <= INLINE_NBYTES:
                views[peer] = made[id(array)]
        return views

    def take(self, us: NetworkCommunicator, contents: list[memoryview], deadline: Deadline) -> None:
        engine, rank = us.engine, us.rank
        large = [(peer, a) for peer, a in self.wanted.items() if peer != rank and a.nbytes > INLINE_NBYTES]
        requests = [engine.receive_bytes(as_bytes(array), peer, COLLECTIVE_TAG, True) for peer, array in large]
        large = [(peer, a) for peer, a in self.offered.items() if peer != rank and a.nbytes > INLINE_NBYTES]
        requests += [engine.send_bytes(as_bytes(array), peer, COLLECTIVE_TAG, True) for peer, array in large]
        for peer, array in self.wanted.items():
            if peer == rank and rank in self.offered:
                _assign(array, self.offered[rank])
            elif peer != rank and array.nbytes <= INLINE_NBYTES:
                as_bytes(array)[:] = contents[peer]
        streams.wait_for(engine, requests, deadline)


def _all_reduce(
    us: NetworkCommunicator, stream: Stream, array: Array, op: ReduceOp, deadline: Deadline, counts: object
) -> None:
    if accumulation_dtype(op.name, array.dtype) == array.dtype and op.factor is None:
        stream(us.engine, array.reshape(-1), op, deadline)
        return
    adding = ReduceOp.SUM if op.name in ("AVG", "PREMUL_SUM") else op
    for piece in _pieces(array.reshape(-1)):
        total = op.accumulator(piece)
        stream(us.engine, total, adding, deadline)
        op.finish(total, piece, us.size)


def _reduce_scatter(
    us: NetworkCommunicator, array: Array, parts: Sequence[Array], op: ReduceOp, deadline: Deadline, counts: object
) -> None:
    if op.factor is not None or accumulation_dtype(op.name, array.dtype) != array.dtype:
        derived.reduce_scatter(us, array, parts, op, deadline)
        return
    flat = array.reshape(-1)
    _assign(flat, parts[us.rank].reshape(-1))
    streams.reduce_scatter(us.engine, flat, [part.reshape(-1) for part in parts], op, deadline)
    if op.name == "AVG":
        op.finish(flat, flat, us.size)


def _pieces(flat: Array) -> Iterator[Array]:
    count = max(1, _PIECE_NBYTES // flat.itemsize)
    return (flat[begin : begin + count] for begin in range(0, flat.size, count))


def _assign(target: Array, source: Array) -> None:
    if target is not source:
        target[...] = source.reshape(target.shape)
