"""Runs algorithms over any backend's `isend` and `irecv`: the default of every collective.

Each function states what it costs. p is the number of ranks, N the bytes of the array, or of all parts together.
Scratch memory is bounded by what the function says; parts that are neighbours in memory travel as one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from rankwise.algorithms.steps import Blocks, Recv, Round, Rounds, Send
from rankwise.algorithms.table import algorithm
from rankwise.arrays import Array
from rankwise.deadline import Deadline
from rankwise.errors import DistTimeoutError
from rankwise.reduce_op import ReduceOp
from rankwise.tags import COLLECTIVE_TAG
from rankwise.work import Work

__all__ = [
    "PointToPoint",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]


class PointToPoint(Protocol):
    """All that is asked of a backend."""

    rank: int
    size: int

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send."""

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive."""


def broadcast(comm: PointToPoint, array: Array, root: int, deadline: Deadline) -> None:
    """Copy the root's array into everyone's.

    Rounds: at most ceil(log2 p); with a ring of p-1 behind for large N. Scratch: none.
    """
    rounds = algorithm("broadcast", array.nbytes, comm.size)(comm.rank, comm.size, root)
    blocks = _cut(array, comm.size)
    _Executor(comm, blocks, blocks, deadline).run(rounds)


def all_reduce(comm: PointToPoint, array: Array, op: ReduceOp, deadline: Deadline) -> None:
    """Reduce the arrays of all ranks into everyone's array.

    Rounds: log2 p for small N, 2 for few ranks, else 2 log2 p or 2(p-1). Scratch: 2N, more where the op accumulates
    in a wider dtype, and N(p-1)/p more in two rounds.
    """
    total = op.accumulator(array)
    rounds = algorithm("all_reduce", total.nbytes, comm.size)(comm.rank, comm.size)
    blocks = _cut(total, comm.size)
    _Executor(comm, blocks, blocks, deadline, op).run(rounds)
    op.finish(total, array, comm.size)


def reduce(comm: PointToPoint, array: Array, op: ReduceOp, root: int, deadline: Deadline) -> None:
    """Reduce the arrays of all ranks into the root's; the others keep theirs.

    Rounds: at most 1 + ceil(log2 p). Scratch: 2N.
    """
    total = op.accumulator(array)
    rounds = algorithm("reduce", total.nbytes, comm.size)(comm.rank, comm.size, root)
    blocks = _cut(total, comm.size)
    _Executor(comm, blocks, blocks, deadline, op).run(rounds)
    if comm.rank == root:
        op.finish(total, array, comm.size)


def all_gather(
    comm: PointToPoint, parts: Sequence[Array], array: Array, deadline: Deadline, tag: int = COLLECTIVE_TAG
) -> None:
    """Copy rank i's array into everyone's `parts[i]`.

    Rounds: ceil(log2 p) for small N, 1 for few ranks, else p-1. Scratch: N, where parts are scattered in memory.
    """
    blocks = [part.reshape(-1) for part in parts]
    _assign(parts[comm.rank], array)
    nbytes = sum(part.nbytes for part in parts)
    rounds = algorithm("all_gather", nbytes, comm.size)(comm.rank, comm.size)
    _Executor(comm, blocks, blocks, deadline, tag=tag).run(rounds)


def gather(
    comm: PointToPoint,
    parts: Sequence[Array] | None,
    array: Array,
    root: int,
    counts: Sequence[int],
    deadline: Deadline,
) -> None:
    """Copy rank i's array of `counts[i]` elements into the root's `parts[i]`.

    Rounds: 1, or ceil(log2 p) for many ranks and small N. Scratch: on a tree, the parts of the ranks below.
    """
    rounds = list(algorithm("gather", sum(counts) * array.itemsize, comm.size)(comm.rank, comm.size, root))
    if parts is not None:
        blocks = [part.reshape(-1) for part in parts]
        _assign(parts[comm.rank], array)
    else:
        blocks = _passing_through(rounds, array, comm.rank, counts)
    _Executor(comm, blocks, blocks, deadline).run(iter(rounds))


def scatter(
    comm: PointToPoint,
    array: Array,
    parts: Sequence[Array] | None,
    root: int,
    counts: Sequence[int],
    deadline: Deadline,
) -> None:
    """Copy the root's `parts[i]`, of `counts[i]` elements, into rank i's array.

    Rounds: 1, or ceil(log2 p) for many ranks and small N. Scratch: on a tree, the parts of the ranks below.
    """
    rounds = list(algorithm("scatter", sum(counts) * array.itemsize, comm.size)(comm.rank, comm.size, root))
    if parts is not None:
        blocks = [part.reshape(-1) for part in parts]
        _assign(array, parts[comm.rank])
    else:
        blocks = _passing_through(rounds, array, comm.rank, counts)
    _Executor(comm, blocks, blocks, deadline).run(iter(rounds))


def reduce_scatter(
    comm: PointToPoint, array: Array, parts: Sequence[Array], op: ReduceOp, deadline: Deadline
) -> None:
    """Reduce everyone's `parts[i]` into rank i's array; the parts keep their content.

    Rounds: 1 for few ranks or small N, else p-1. Scratch: in one round p times the own part, else N and one part more,
    wider where the op accumulates in a wider dtype.
    """
    nbytes = sum(part.nbytes for part in parts)
    rounds = list(algorithm("reduce_scatter", nbytes, comm.size)(comm.rank, comm.size))
    if len(rounds) <= 1 and op.factor is None:
        # Nothing that was combined is sent on: the others' parts can go as they are, and only the own accumulates.
        source = [part.reshape(-1) for part in parts]
        target = [op.accumulator(part) if rank == comm.rank else part for rank, part in enumerate(source)]
    else:
        source = target = [op.accumulator(part) for part in parts]
    _Executor(comm, source, target, deadline, op).run(iter(rounds))
    op.finish(target[comm.rank], array, comm.size)


def all_to_all(comm: PointToPoint, outs: Sequence[Array], ins: Sequence[Array], deadline: Deadline) -> None:
    """Copy rank i's `ins[j]` into rank j's `outs[i]`.

    Rounds: 1 for few ranks, else p-1. Scratch: none.
    """
    _assign(outs[comm.rank], ins[comm.rank])
    sources, targets = [a.reshape(-1) for a in ins], [a.reshape(-1) for a in outs]
    # Only the number of ranks may choose: each rank knows the sizes of its own parts alone.
    rounds = algorithm("all_to_all", 0, comm.size)(comm.rank, comm.size)
    _Executor(comm, sources, targets, deadline).run(rounds)


def barrier(comm: PointToPoint, deadline: Deadline) -> None:
    """Return once every rank has called.

    Rounds: ceil(log2 p).
    """
    blocks: list[Array] = []
    _Executor(comm, blocks, blocks, deadline).run(algorithm("barrier", 0, comm.size)(comm.rank, comm.size))


class _Executor:
    """One rank's run of an algorithm over point-to-point messages."""

    def __init__(
        self,
        comm: PointToPoint,
        source: Sequence[Array],
        target: Sequence[Array],
        deadline: Deadline,
        op: ReduceOp | None = None,
        tag: int = COLLECTIVE_TAG,
    ) -> None:
        self.comm, self.source, self.target = comm, source, target
        self.deadline, self.op, self.tag = deadline, op, tag

    def run(self, rounds: Rounds) -> None:
        for steps in rounds:
            self._round(steps)

    def _round(self, steps: Round) -> None:
        """Post all receives, then all sends; wait for both, then take in what has come, in the order of the steps."""
        coming = [self._begin_receive(step) for step in steps if isinstance(step, Recv)]
        going = [(step.to, self._begin_send(step)) for step in steps if isinstance(step, Send)]
        self._wait("waiting for", [(step.source, work) for step, _, work in coming])
        # Before anything is combined into blocks that are still on their way out.
        self._wait("sending to", going)
        arrived = [(step, buffer) for step, buffer, _ in coming if buffer is not None]
        for blocks, messages in groupby(arrived, key=lambda message: message[0].blocks):
            self._take(blocks, list(messages))

    def _begin_receive(self, step: Recv) -> tuple[Recv, Array | None, Work | None]:
        """Receive straight into place if that is possible, else into scratch, which is returned."""
        blocks = [self.target[b] for b in step.blocks]
        whole = None if step.combine else _joined(blocks)
        if whole is not None:
            return step, None, self._receive(whole, step.source)
        scratch = _EMPTY
        if blocks:
            like = self.source[step.blocks[0]]  # what travels has the dtype of what is sent
            scratch = np.empty_like(like, shape=(sum(block.size for block in blocks),))
        return step, scratch, self._receive(scratch, step.source)

    def _receive(self, buffer: Array, source: int) -> Work | None:
        # Both sides know the sizes, and a message of nothing says nothing; only a barrier needs its signals.
        if buffer.size == 0 and self.source:
            return None
        return self.comm.irecv(buffer, source, self.tag)

    def _begin_send(self, step: Send) -> Work | None:
        blocks = [self.source[b] for b in step.blocks]
        whole = _joined(blocks) if blocks else _EMPTY
        if whole is None:
            whole = np.concatenate(blocks)
        if whole.size == 0 and self.source:
            return None
        return self.comm.isend(whole, step.to, self.tag)

    def _take(self, numbers: Blocks, messages: Sequence[tuple[Recv, Array]]) -> None:
        """Put or combine into the same blocks what several messages have brought, a cacheful at a time."""
        start = 0
        for block in (self.target[number] for number in numbers):
            stride = max(1, _CACHEFUL // max(1, block.itemsize))
            for begin in range(0, block.size, stride):
                piece = block[begin : begin + stride]
                span = slice(start + begin, start + begin + piece.size)
                for step, buffer in messages:
                    if step.combine and self.op is not None:
                        self.op.combine(piece, buffer[span], step.left)
                    else:
                        piece[...] = buffer[span]
            start += block.size

    def _wait(self, doing: str, works: Sequence[tuple[int, Work | None]]) -> None:
        for peer, work in works:
            if work is None:
                continue
            try:
                work.wait(self.deadline.remaining())
            except DistTimeoutError as error:
                late = {peer, *(other for other, w in works if w is not None and not w.is_completed())}
                names = ", ".join(str(name) for name in sorted(_named(self.comm, other) for other in late))
                who = f"{doing} rank{'s' if len(late) > 1 else ''} {names}"
                raise DistTimeoutError(f"not done within {self.deadline.timeout_s:g} s, {who}") from error


_EMPTY: Array = np.empty(0, np.uint8)

#: Bytes that are combined at a time. With several peers the accumulator then stays in the cache from one to the next,
#: which was measured to save a quarter of the time.
_CACHEFUL = 256 << 10


def _named(comm: PointToPoint, peer: int) -> int:
    """Return the global rank, by which users know their processes, if the communicator can tell it."""
    context: Any = getattr(comm, "context", None)
    name: int = peer if context is None else context.global_ranks[peer]
    return name


def _cut(array: Array, size: int) -> list[Array]:
    """Cut an array into `size` blocks that differ by at most one element."""
    flat = array.reshape(-1)
    return [flat[flat.size * i // size : flat.size * (i + 1) // size] for i in range(size)]


def _joined(blocks: Sequence[Array]) -> Array | None:
    """Return one array over the memory of blocks that follow each other in it, or None if they do not."""
    filled = [block for block in blocks if block.size]
    if len(filled) <= 1:
        return filled[0] if filled else (blocks[0] if blocks else None)
    base = filled[0].base
    if base is None or type(base) is not np.ndarray or not base.flags.c_contiguous or base.dtype != filled[0].dtype:
        return None
    address = begin = filled[0].ctypes.data
    for block in filled:
        if block.base is not base or block.ctypes.data != address:
            return None
        address += block.nbytes
    offset, odd = divmod(begin - base.ctypes.data, base.itemsize)
    if odd:
        return None  # views of bytes in between
    return base.reshape(-1)[offset : offset + sum(block.size for block in filled)]


def _assign(target: Array, source: Array) -> None:
    if target is not source:
        target[...] = source.reshape(target.shape)


def _passing_through(rounds: Sequence[Round], array: Array, rank: int, counts: Sequence[int]) -> list[Array]:
    """Return a rank's own part among buffers for the parts of others that it hands on."""
    handled = {block for steps in rounds for step in steps for block in step.blocks}
    return [
        array.reshape(-1)
        if block == rank
        else np.empty_like(array, shape=(count if block in handled else 0,))
        for block, count in enumerate(counts)
    ]
