"""Runs algorithms over any backend's `isend` and `irecv`: the default of every collective.

Each function states what it costs. p is the number of ranks, N the bytes of the array, or of all parts together.
Scratch memory is bounded by what the function says; parts that are neighbours in memory travel as one message.

Functions that only copy see bytes and no dtypes, so no value can change on the way. Those that reduce work on
accumulators. Nothing is ever received into an input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rankwise.basics.arrays import Array
from rankwise.basics.deadline import Deadline
from rankwise.basics.devices import raw
from rankwise.basics.messages import COLLECTIVE_TAG
from rankwise.basics.reduce_op import ReduceOp, accumulation_dtype
from rankwise.collective.algorithms import Round
from rankwise.collective.algorithms.table import algorithm
from rankwise.collective.executor import Executor, PointToPoint

#: What reductions hold of an array at a time.
_PIECE_NBYTES = 8 << 20


def broadcast(comm: PointToPoint, array: Array, root: int, deadline: Deadline) -> None:
    """Copy the root's array into everyone's.

    Rounds: at most ceil(log2 p); with a ring of p-1 behind for large N. Scratch: none.
    """
    rounds = algorithm("broadcast", array.nbytes, comm.size)(comm.rank, comm.size, root)
    blocks = _cut(raw(array), comm.size)
    Executor(comm, blocks, blocks, deadline).run(rounds)


def all_reduce(comm: PointToPoint, array: Array, op: ReduceOp, deadline: Deadline) -> None:
    """Reduce the arrays of all ranks into everyone's array.

    Rounds: log2 p for small N, 2 for few ranks, else 2 ceil(log2 p) or 2(p-1). Scratch: 2N, more where the op
    accumulates in a wider dtype, and N(p-1)/p more in two rounds; N is at most 8 MiB, beyond which arrays go in pieces.
    """
    nbytes = array.size * accumulation_dtype(op.name, array.dtype).itemsize
    for piece in _pieces(array, op):
        total = op.accumulator(piece)
        rounds = algorithm("all_reduce", nbytes, comm.size)(comm.rank, comm.size)
        blocks = _cut(total, comm.size)
        Executor(comm, blocks, blocks, deadline, op).run(rounds)
        op.finish(total, piece, comm.size)


def reduce(comm: PointToPoint, array: Array, op: ReduceOp, root: int, deadline: Deadline) -> None:
    """Reduce the arrays of all ranks into the root's; the others keep theirs.

    Rounds: at most 1 + ceil(log2 p). Scratch: 2N, where N is at most 8 MiB, beyond which arrays go in pieces.
    """
    nbytes = array.size * accumulation_dtype(op.name, array.dtype).itemsize
    for piece in _pieces(array, op):
        total = op.accumulator(piece)
        rounds = algorithm("reduce", nbytes, comm.size)(comm.rank, comm.size, root)
        blocks = _cut(total, comm.size)
        Executor(comm, blocks, blocks, deadline, op).run(rounds)
        if comm.rank == root:
            op.finish(total, piece, comm.size)


def all_gather(
    comm: PointToPoint, parts: Sequence[Array], array: Array, deadline: Deadline, tag: int = COLLECTIVE_TAG
) -> None:
    """Copy rank i's array into everyone's `parts[i]`.

    Rounds: 1 for few ranks and large N, else ceil(log2 p) or p-1. Scratch: N, where parts are scattered in memory.
    """
    blocks = [raw(part) for part in parts]
    blocks[comm.rank][...] = raw(array)
    rounds = algorithm("all_gather", sum(block.nbytes for block in blocks), comm.size)(comm.rank, comm.size)
    Executor(comm, blocks, blocks, deadline, tag=tag).run(rounds)


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
        blocks = [raw(part) for part in parts]
        blocks[comm.rank][...] = raw(array)
    else:
        blocks = _passing_through(rounds, array, comm.rank, counts)
    Executor(comm, blocks, blocks, deadline).run(iter(rounds))


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
        blocks = [raw(part) for part in parts]
        raw(array)[...] = blocks[comm.rank]
    else:
        blocks = _passing_through(rounds, array, comm.rank, counts)
    Executor(comm, blocks, blocks, deadline).run(iter(rounds))


def reduce_scatter(comm: PointToPoint, array: Array, parts: Sequence[Array], op: ReduceOp, deadline: Deadline) -> None:
    """Reduce everyone's `parts[i]` into rank i's array; the parts keep their content.

    Rounds: 1 for few ranks, else ceil(log2 p) or p-1. Scratch: in one round p times the own part, else up to 1.5 N,
    wider where the op accumulates in a wider dtype; N is at most 8 MiB, beyond which parts go in pieces.
    """
    flat, flats = array.reshape(-1), [part.reshape(-1) for part in parts]
    wide = accumulation_dtype(op.name, array.dtype).itemsize
    nbytes = sum(part.size for part in flats) * (array.itemsize if op.factor is None else wide)
    step = max(1, _PIECE_NBYTES // (wide * comm.size))
    for begin in range(0, max(part.size for part in flats), step):
        pieces = [part[begin : begin + step] for part in flats]
        rounds = list(algorithm("reduce_scatter", nbytes, comm.size)(comm.rank, comm.size))
        _reduce_scatter(comm, flat[begin : begin + step], pieces, op, rounds, deadline)


def _reduce_scatter(
    comm: PointToPoint, out: Array, parts: Sequence[Array], op: ReduceOp, rounds: list[Round], deadline: Deadline
) -> None:
    if len(rounds) <= 1 and op.factor is None:
        # Nothing that was combined is sent on: the others' parts can go as they are, and only the own accumulates.
        source = parts
        target = [op.accumulator(part) if rank == comm.rank else part[:0] for rank, part in enumerate(parts)]
    else:
        source = target = [op.accumulator(part) for part in parts]
    Executor(comm, source, target, deadline, op).run(iter(rounds))
    op.finish(target[comm.rank], out, comm.size)


def all_to_all(comm: PointToPoint, outs: Sequence[Array], ins: Sequence[Array], deadline: Deadline) -> None:
    """Copy rank i's `ins[j]` into rank j's `outs[i]`.

    Rounds: 1 for few ranks, else p-1. Scratch: none.
    """
    sources, targets = [raw(array) for array in ins], [raw(array) for array in outs]
    targets[comm.rank][...] = sources[comm.rank]
    # Only the number of ranks may decide: each rank knows the sizes of its own parts only.
    rounds = algorithm("all_to_all", 0, comm.size)(comm.rank, comm.size)
    Executor(comm, sources, targets, deadline).run(rounds)


def _pieces(array: Array, op: ReduceOp) -> Iterator[Array]:
    """Cut an array into pieces whose accumulators are of a bounded size."""
    flat = array.reshape(-1)
    count = max(1, _PIECE_NBYTES // accumulation_dtype(op.name, array.dtype).itemsize)
    return (flat[begin : begin + count] for begin in range(0, flat.size, count))


def _cut(flat: Array, size: int) -> list[Array]:
    """Cut a flat array into `size` blocks that differ by at most one element."""
    return [flat[flat.size * i // size : flat.size * (i + 1) // size] for i in range(size)]


def _passing_through(rounds: Sequence[Round], array: Array, rank: int, counts: Sequence[int]) -> list[Array]:
    """Return the bytes of a rank's own part among buffers for the parts of others that it hands on."""
    handled = {block for steps in rounds for step in steps for block in step.blocks}
    own = raw(array)
    return [
        own if block == rank else np.empty_like(own, shape=(count * array.itemsize if block in handled else 0,))
        for block, count in enumerate(counts)
    ]
