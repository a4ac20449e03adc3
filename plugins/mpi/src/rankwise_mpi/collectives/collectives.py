"""`Collectives`: what each collective of the contract is in MPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from rankwise.backends import Array, ReduceOp, Work
from rankwise_mpi.collectives.issuing import Issuing
from rankwise_mpi.collectives.marks import BARRIER, pairwise, parted, uniform
from rankwise_mpi.group.endpoint import Endpoint
from rankwise_mpi.library.counts import message, pieces
from rankwise_mpi.library.layout import Layout, address_of, contiguous
from rankwise_mpi.library.reductions import KERNELS, Kernel

__all__ = ["Collectives"]

_IN_PLACE, _BYTE = MPI.IN_PLACE, MPI.BYTE


class Collectives:
    """The collectives of one group; arguments as in `rankwise.backends.Communicator`.

    Args:
        endpoint: This rank's end of the group.
        issuing: Their way to MPI.
    """

    def __init__(self, endpoint: Endpoint, issuing: Issuing) -> None:
        self._rank, self._size, self._limit = endpoint.rank, endpoint.size, endpoint.limit
        self._call, self._several = issuing.call, issuing.several

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's, by MPI_Bcast."""
        mark, nbytes = uniform("broadcast", array, root=root), array.nbytes
        if nbytes > self._limit:
            flat = array.reshape(-1).view(np.uint8)
            calls = [((piece, piece.size, _BYTE), root) for piece in pieces(flat, self._limit)]
            return self._several("broadcast", calls, mark, nbytes, timeout_s, async_op)
        return self._call("broadcast", ((array, nbytes, _BYTE), root), mark, nbytes, timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into everyone's array, in place, by MPI_Allreduce."""
        how, mark = KERNELS[op.name, array.dtype], uniform("all_reduce", array, op)
        if how.plain and (count := array.size) <= self._limit:
            args = (_IN_PLACE, (array, count, how.datatype), how.op)
            return self._call("all_reduce", args, mark, array.nbytes, timeout_s, async_op)
        total = _accumulator(how, op, array)
        calls = [(_IN_PLACE, (piece, piece.size, how.datatype), how.op) for piece in pieces(total, self._limit)]
        finish = None if how.plain else lambda: _finish(op, total, array, self._size)
        return self._several("all_reduce", calls, mark, array.nbytes, timeout_s, async_op, finish)

    def reduce(self, array: Array, op: ReduceOp, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into the root's array, by MPI_Reduce."""
        how, mark, nbytes = KERNELS[op.name, array.dtype], uniform("reduce", array, op, root), array.nbytes
        total = _accumulator(how, op, array)
        whole: list[Any] = [(piece, piece.size, how.datatype) for piece in pieces(total, self._limit)]
        if self._rank != root:
            sends = [(piece, None, how.op, root) for piece in whole]
            return self._several("reduce", sends, mark, nbytes, timeout_s, async_op)
        finish = None if how.plain else lambda: _finish(op, total, array, self._size)
        calls = [(_IN_PLACE, piece, how.op, root) for piece in whole]
        return self._several("reduce", calls, mark, nbytes, timeout_s, async_op, finish)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`, by MPI_Allgatherv."""
        _copy_own(parts[self._rank], array)
        layout = Layout(parts, self._limit, fill=False)
        if layout.copied:
            layout.fill(self._rank)
        mark, total = parted("all_gather", array.dtype, parts), sum([part.nbytes for part in parts])
        args = (_IN_PLACE, layout.message)
        return self._call("all_gather", args, mark, total, timeout_s, async_op, layout.receive)

    def gather(
        self, parts: Sequence[Array] | None, array: Array, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy rank i's array into `parts[i]` of the root, by MPI_Gatherv."""
        mark = pairwise("gather", array.dtype, self._rank, received=parts, root=root, own=array.size)
        if parts is None:
            buffer = message(array, array.nbytes, self._limit)
            return self._call("gather", (buffer, None, root), mark, 0, timeout_s, async_op)
        _copy_own(parts[root], array)
        layout = Layout(parts, self._limit, fill=False)
        if layout.copied:
            layout.fill(root)
        args = (_IN_PLACE, layout.message, root)
        return self._call("gather", args, mark, 0, timeout_s, async_op, layout.receive)

    def scatter(
        self, array: Array, parts: Sequence[Array] | None, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy `parts[i]` of the root into rank i's array, by MPI_Scatterv."""
        mark = pairwise("scatter", array.dtype, self._rank, sent=parts, root=root, own=array.size)
        if parts is None:
            buffer = message(array, array.nbytes, self._limit)
            return self._call("scatter", (None, buffer, root), mark, 0, timeout_s, async_op)
        _copy_own(array, parts[root])
        layout = Layout(parts, self._limit, fill=True)
        return self._call("scatter", (layout.message, _IN_PLACE, root), mark, 0, timeout_s, async_op, layout.free)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array, by MPI_Reduce_scatter."""
        how, counts = KERNELS[op.name, array.dtype], [part.size for part in parts]
        whole = _whole(how, op, parts)
        aliased = any(np.may_share_memory(part, array) for part in parts)
        out = array
        if how.widens:
            out = np.empty(array.size, whole.dtype, like=array)
        elif aliased:
            out = np.empty_like(array)
        finish = None if out is array and how.plain else lambda: _finish(op, out, array, self._size)
        args = ((whole, sum(counts), how.datatype), (out, out.size, how.datatype), counts, how.op)
        mark, nbytes = parted("reduce_scatter", array.dtype, parts, op), sum(counts) * array.itemsize
        return self._call("reduce_scatter", args, mark, nbytes, timeout_s, async_op, finish)

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array], timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's `ins[j]` into rank j's `outs[i]`, by MPI_Alltoallv."""
        sent, received = Layout(ins, self._limit, fill=True), Layout(outs, self._limit, fill=False)

        def finish() -> None:
            sent.free()
            received.receive()

        args = (sent.message, received.message)
        mark = pairwise("all_to_all", ins[0].dtype, self._rank, ins, outs)
        return self._call("all_to_all", args, mark, 0, timeout_s, async_op, finish)

    def barrier(self, timeout_s: float, async_op: bool = False) -> Work:
        """Return once every rank has called: the meeting is enough, where there is one, else by MPI_Ibarrier."""
        return self._call("barrier", (), BARRIER, 0, timeout_s, async_op)


def _accumulator(how: Kernel, op: ReduceOp, array: Array) -> Array:
    """Return what the reduction is done in: the array itself, if that can be."""
    return op.accumulator(array) if how.widens or op.factor is not None else array


def _whole(how: Kernel, op: ReduceOp, parts: Sequence[Array]) -> Any:
    """Return all parts as one buffer to be reduced."""
    if how.widens or op.factor is not None:
        return np.concatenate([op.accumulator(part) for part in parts])
    if contiguous(parts):
        start = next((address_of(part) for part in parts if part.nbytes), 0)
        return MPI.buffer.fromaddress(start, sum(part.nbytes for part in parts))
    return np.concatenate([part.reshape(-1) for part in parts])


def _copy_own(target: Array, source: Array) -> None:
    """Copy this rank's own part, which MPI then finds in place."""
    if target.nbytes and address_of(target) != address_of(source):
        target.reshape(-1)[...] = source.reshape(-1)


def _finish(op: ReduceOp, total: Array, array: Array, size: int) -> None:
    """Put the reduced `total` into the caller's array, which it may be already."""
    if total is array:
        op.average(array, size)
    else:
        op.finish(total, array, size)
