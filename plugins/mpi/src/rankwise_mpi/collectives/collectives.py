"""`Collectives`: what each collective of the contract is in MPI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from mpi4py import MPI

from rankwise.backends import Array, Call, ReduceOp, is_sparse
from rankwise_mpi.collectives.marks import BARRIER, CallMark, pairwise, parted, uniform
from rankwise_mpi.group.endpoint import Endpoint
from rankwise_mpi.library.counts import message, pieces
from rankwise_mpi.library.layout import Layout, address_of, one_after_the_other
from rankwise_mpi.library.reductions import KERNELS, Kernel

_IN_PLACE, _BYTE = MPI.IN_PLACE, MPI.BYTE


class Planned(NamedTuple):
    """How a call goes to MPI.

    Attributes:
        calls: What MPI is called with, for each piece of the array; mostly there is one.
        mark: What stands for the call.
        nbytes: How much it moves; the same on all ranks.
        finish: Called when MPI is done.
    """

    calls: Sequence[tuple[Any, ...]]
    mark: CallMark
    nbytes: int = 0
    finish: Callable[[], object] | None = None


class Collectives:
    """What MPI does of the collectives of one group.

    Args:
        endpoint: This rank's end of the group.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._rank, self._size, self._limit = endpoint.rank, endpoint.size, endpoint.limit

    def takes(self, call: Call) -> bool:
        """Tell whether MPI carries a call out; else it is too large for its counts, or not of MPI."""
        if call.op == "all_gather":
            return bool(sum([part.nbytes for part in call.outs or ()]) <= self._limit)
        if call.op == "reduce_scatter":
            return bool(sum([part.size for part in call.ins or ()]) <= self._limit)
        return call.op in self.PLANS and not is_sparse(call.array)

    def plan(self, call: Call) -> Planned:
        """Return how a call goes to MPI."""
        return self.PLANS[call.op](self, call)

    def _broadcast(self, call: Call) -> Planned:
        """By MPI_Bcast."""
        array, root = call.array, call.root
        mark, nbytes = uniform("broadcast", array, root=root), array.nbytes
        if nbytes > self._limit:
            flat = array.reshape(-1).view(np.uint8)
            calls = [((piece, piece.size, _BYTE), root) for piece in pieces(flat, self._limit)]
            return Planned(calls, mark, nbytes)
        return Planned([((array, nbytes, _BYTE), root)], mark, nbytes)

    def _all_reduce(self, call: Call) -> Planned:
        """In place, by MPI_Allreduce."""
        array, op = call.array, _op_of(call)
        how, mark = KERNELS[op.name, array.dtype], uniform("all_reduce", array, op)
        if how.plain and (count := array.size) <= self._limit:
            args = (_IN_PLACE, (array, count, how.datatype), how.op)
            return Planned([args], mark, array.nbytes)
        total = _accumulator(how, op, array)
        calls = [(_IN_PLACE, (piece, piece.size, how.datatype), how.op) for piece in pieces(total, self._limit)]
        finish = None if how.plain else lambda: _finish(op, total, array, self._size)
        return Planned(calls, mark, array.nbytes, finish)

    def _reduce(self, call: Call) -> Planned:
        """By MPI_Reduce."""
        array, op, root = call.array, _op_of(call), call.root
        how, mark, nbytes = KERNELS[op.name, array.dtype], uniform("reduce", array, op, root), array.nbytes
        total = _accumulator(how, op, array)
        whole: list[Any] = [(piece, piece.size, how.datatype) for piece in pieces(total, self._limit)]
        if self._rank != root:
            return Planned([(piece, None, how.op, root) for piece in whole], mark, nbytes)
        finish = None if how.plain else lambda: _finish(op, total, array, self._size)
        return Planned([(_IN_PLACE, piece, how.op, root) for piece in whole], mark, nbytes, finish)

    def _all_gather(self, call: Call) -> Planned:
        """By MPI_Allgatherv."""
        parts, array = call.outs or (), call.array
        _copy_own(parts[self._rank], array)
        layout = Layout(parts, self._limit, fill=False)
        if layout.copied:
            layout.fill(self._rank)
        mark, total = parted("all_gather", array.dtype, parts), sum([part.nbytes for part in parts])
        return Planned([(_IN_PLACE, layout)], mark, total, layout.receive)

    def _gather(self, call: Call) -> Planned:
        """By MPI_Gatherv."""
        parts, array, root = call.outs, call.array, call.root
        mark = pairwise("gather", array.dtype, self._rank, received=parts, root=root, own=array.size)
        if parts is None:
            buffer = message(array, array.nbytes, self._limit)
            return Planned([(buffer, None, root)], mark)
        _copy_own(parts[root], array)
        layout = Layout(parts, self._limit, fill=False)
        if layout.copied:
            layout.fill(root)
        return Planned([(_IN_PLACE, layout, root)], mark, finish=layout.receive)

    def _scatter(self, call: Call) -> Planned:
        """By MPI_Scatterv."""
        parts, array, root = call.ins, call.array, call.root
        mark = pairwise("scatter", array.dtype, self._rank, sent=parts, root=root, own=array.size)
        if parts is None:
            buffer = message(array, array.nbytes, self._limit)
            return Planned([(None, buffer, root)], mark)
        _copy_own(array, parts[root])
        layout = Layout(parts, self._limit, fill=True)
        return Planned([(layout, _IN_PLACE, root)], mark, finish=layout.free)

    def _reduce_scatter(self, call: Call) -> Planned:
        """By MPI_Reduce_scatter."""
        array, parts, op = call.array, call.ins or (), _op_of(call)
        how, counts = KERNELS[op.name, array.dtype], [part.size for part in parts]
        whole, dtype = _whole(how, op, parts)
        aliased = any(np.may_share_memory(part, array) for part in parts)
        out = array
        if how.widens:
            out = np.empty(array.size, dtype, like=array)
        elif aliased:
            out = np.empty_like(array)
        finish = None if out is array and how.plain else lambda: _finish(op, out, array, self._size)
        args = (whole, (out, out.size, how.datatype), counts, how.op)
        mark, nbytes = parted("reduce_scatter", array.dtype, parts, op), sum(counts) * array.itemsize
        return Planned([args], mark, nbytes, finish)

    def _all_to_all(self, call: Call) -> Planned:
        """By MPI_Alltoallv."""
        outs, ins = call.outs or (), call.ins or ()
        sent, received = Layout(ins, self._limit, fill=True), Layout(outs, self._limit, fill=False)

        def finish() -> None:
            sent.free()
            received.receive()

        args = (sent, received)
        mark = pairwise("all_to_all", ins[0].dtype, self._rank, ins, outs)
        return Planned([args], mark, finish=finish)

    def _barrier(self, call: Call) -> Planned:
        """The meeting is enough, where there is one, else by MPI_Ibarrier."""
        return Planned([()], BARRIER)

    #: What MPI does; what is not here is derived.
    PLANS: ClassVar[Mapping[str, Callable[[Collectives, Call], Planned]]] = {
        "broadcast": _broadcast,
        "all_reduce": _all_reduce,
        "reduce": _reduce,
        "all_gather": _all_gather,
        "gather": _gather,
        "scatter": _scatter,
        "reduce_scatter": _reduce_scatter,
        "all_to_all": _all_to_all,
        "barrier": _barrier,
    }


def _op_of(call: Call) -> ReduceOp:
    assert call.reduce_op is not None
    return call.reduce_op


def _accumulator(how: Kernel, op: ReduceOp, array: Array) -> Array:
    """Return what the reduction is done in: the array itself, if that can be."""
    return op.accumulator(array) if how.widens or op.factor is not None else array


def _whole(how: Kernel, op: ReduceOp, parts: Sequence[Array]) -> tuple[Any, np.dtype[Any]]:
    """Return all parts as one buffer to be reduced, and the dtype of its elements."""
    if how.widens or op.factor is not None:
        whole = np.concatenate([op.accumulator(part) for part in parts])
    else:
        told = one_after_the_other(parts, how.datatype)
        if told is not None:
            return told, parts[0].dtype
        whole = np.concatenate([part.reshape(-1) for part in parts])
    return (whole, whole.size, how.datatype), whole.dtype


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
