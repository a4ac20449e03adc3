"""`MpiCommunicator`: the collectives of one group on MPI.

A synchronous collective runs on the caller's own thread. Where that is as fast, it is the nonblocking call of MPI and
a wait that looks at the clock; else the ranks first wait for each other at the group's gate (on several hosts, in a
nonblocking reduction), whose wait has the deadline, and then make the blocking call, which nobody is missing from any
more. An asynchronous one is the nonblocking call, and so are the synchronous ones of other ranks that meet it. MPI
keeps the order in which a rank issues collectives, so that there is no queue of our own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from rankwise.backends import COMPLETED, Array, Context, Deadline, ReduceOp, Work
from rankwise.errors import DistTimeoutError
from rankwise_mpi import cuda
from rankwise_mpi.counts import message, pieces
from rankwise_mpi.gate import Gate
from rankwise_mpi.layout import Layout, address_of, contiguous
from rankwise_mpi.meeting import MpiMeeting
from rankwise_mpi.pages import Pages
from rankwise_mpi.reductions import KERNELS
from rankwise_mpi.shortest import shortest_collective, shortest_recv, shortest_send
from rankwise_mpi.works import Requests, RequestWork

if TYPE_CHECKING:
    from rankwise_mpi.process import Process

__all__ = ["MpiCommunicator", "Native"]

_IN_PLACE, _BYTE = MPI.IN_PLACE, MPI.BYTE

_NEVER = 1 << 62
#: From how many bytes on the ranks meet and make MPI's blocking call, where that is faster than the nonblocking one:
#: if they meet at a gate, and if they do not. All ranks must come to the same answer.
_BLOCKS_FROM = {"all_reduce": (0, _NEVER), "broadcast": (1 << 18, _NEVER)}
_OPENMPI_BLOCKS_FROM = {"all_reduce": (0, 1 << 10), "broadcast": (1 << 18, _NEVER), "reduce": (1 << 12, 1 << 12)}
_CALLS = {
    "broadcast": "Bcast",
    "all_reduce": "Allreduce",
    "reduce": "Reduce",
    "all_gather": "Allgatherv",
    "gather": "Gatherv",
    "scatter": "Scatterv",
    "reduce_scatter": "Reduce_scatter",
    "all_to_all": "Alltoallv",
    "barrier": "Barrier",
}


@dataclass(frozen=True, slots=True)
class Native:
    """One collective of MPI.

    Attributes:
        name: Its name in the contract.
        begin: The nonblocking call.
        block: The blocking call.
        blocks_from: From how many bytes on the ranks meet and make the blocking call.
    """

    name: str
    begin: Callable[..., MPI.Request]
    block: Callable[..., None]
    blocks_from: int


class MpiCommunicator(MpiMeeting):
    """One group on MPI.

    Args:
        context: What the core says of the group.
        process: MPI in this process.
        pages: The group's own communicators.
        gate: Where its ranks meet, if they are all on one host.
    """

    def __init__(self, context: Context, process: Process, pages: Pages, gate: Gate | None) -> None:
        super().__init__(context, process, pages, gate)
        #: The number of the next collective; whoever takes it may issue that, and puts the following one in its place.
        #: Cheaper than a lock, and waited for with a deadline.
        self.turn: deque[int] = deque([1])
        self.natives = {name: self._native(name) for name in _CALLS}
        self._broadcast, self._all_reduce, self._barrier = (
            self.natives[name] for name in ("broadcast", "all_reduce", "barrier")
        )

    def _native(self, name: str) -> Native:
        table = _OPENMPI_BLOCKS_FROM if self._process.is_openmpi else _BLOCKS_FROM
        at_gate, otherwise = table.get(name, (_NEVER, _NEVER)) if self.size > 1 else (_NEVER, _NEVER)
        blocks_from = otherwise if self._gate is None else at_gate
        call = _CALLS[name]
        return Native(name, getattr(self._comm, f"I{call.lower()}"), getattr(self._comm, call), blocks_from)

    def shorten(self) -> None:
        """Put the shortest ways in the place of the methods, where there are such."""
        if self._on_device:
            return
        ways: dict[str, Callable[..., Any]] = {"send": shortest_send(self), "recv": shortest_recv(self)}
        if self._gate is not None:
            for name in ("all_reduce", "broadcast"):
                ways[name] = shortest_collective(self, self._gate, name)
        for name, way in ways.items():
            setattr(self, name, way)

    def close(self) -> None:
        """Give communicators and gate back."""
        for name in ("send", "recv", "all_reduce", "broadcast"):
            vars(self).pop(name, None)  # it refers to the group, which should go as soon as nobody needs it
        super().close()

    # ------------------------------------------------------------------ collectives

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's, by MPI_Bcast."""
        if array.nbytes > self.limit:
            buffers = [((piece, piece.size, _BYTE), root) for piece in pieces(_flat_bytes(array), self.limit)]
            return self._several(self._broadcast, buffers, array, timeout_s, async_op)
        nbytes = array.nbytes
        return self._call_mpi(self._broadcast, ((array, nbytes, _BYTE), root), nbytes, timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into everyone's array, in place, by MPI_Allreduce."""
        how = KERNELS[op.name, array.dtype]
        if how.plain and (count := array.size) <= self.limit:
            args = (_IN_PLACE, (array, count, how.datatype), how.op)
            return self._call_mpi(self._all_reduce, args, array.nbytes, timeout_s, async_op)
        total = op.accumulator(array) if how.widens or op.factor is not None else array
        calls = [(_IN_PLACE, (piece, piece.size, how.datatype), how.op) for piece in pieces(total, self.limit)]
        finish = None if how.plain else lambda: _finish(op, total, array, self.size)
        return self._several(self._all_reduce, calls, array, timeout_s, async_op, finish)

    def reduce(self, array: Array, op: ReduceOp, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into the root's array, by MPI_Reduce."""
        how = KERNELS[op.name, array.dtype]
        total = op.accumulator(array) if how.widens or op.factor is not None else array
        whole: list[Any] = [(piece, piece.size, how.datatype) for piece in pieces(total, self.limit)]
        if self.rank != root:
            sends = [(piece, None, how.op, root) for piece in whole]
            return self._several(self.natives["reduce"], sends, array, timeout_s, async_op)
        finish = None if how.plain else lambda: _finish(op, total, array, self.size)
        calls = [(_IN_PLACE, piece, how.op, root) for piece in whole]
        return self._several(self.natives["reduce"], calls, array, timeout_s, async_op, finish)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`, by MPI_Allgatherv."""
        total = sum(part.nbytes for part in parts)
        if total > self.limit:
            return super().all_gather(parts, array, timeout_s, async_op)
        _copy_own(parts[self.rank], array)
        layout = Layout(parts, self.limit, fill=False)
        if layout.copied:
            layout.fill(self.rank)
        args = (_IN_PLACE, layout.message)
        return self._call_mpi(self.natives["all_gather"], args, total, timeout_s, async_op, layout.receive)

    def gather(
        self, parts: Sequence[Array] | None, array: Array, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy rank i's array into `parts[i]` of the root, by MPI_Gatherv."""
        native = self.natives["gather"]
        if parts is None:
            buffer = message(array, array.nbytes, self.limit)
            return self._call_mpi(native, (buffer, None, root), 0, timeout_s, async_op)
        _copy_own(parts[root], array)
        layout = Layout(parts, self.limit, fill=False)
        if layout.copied:
            layout.fill(root)
        args = (_IN_PLACE, layout.message, root)
        return self._call_mpi(native, args, 0, timeout_s, async_op, layout.receive)

    def scatter(
        self, array: Array, parts: Sequence[Array] | None, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy `parts[i]` of the root into rank i's array, by MPI_Scatterv."""
        native = self.natives["scatter"]
        if parts is None:
            buffer = message(array, array.nbytes, self.limit)
            return self._call_mpi(native, (None, buffer, root), 0, timeout_s, async_op)
        _copy_own(array, parts[root])
        layout = Layout(parts, self.limit, fill=True)
        return self._call_mpi(native, (layout.message, _IN_PLACE, root), 0, timeout_s, async_op, layout.free)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array, by MPI_Reduce_scatter."""
        counts = [part.size for part in parts]
        if sum(counts) > self.limit:
            return super().reduce_scatter(array, parts, op, timeout_s, async_op)
        how = KERNELS[op.name, array.dtype]
        if how.widens or op.factor is not None:
            whole: Any = np.concatenate([op.accumulator(part) for part in parts])
        elif contiguous(parts):
            start = next((address_of(part) for part in parts if part.nbytes), 0)
            whole = MPI.buffer.fromaddress(start, sum(part.nbytes for part in parts))
        else:
            whole = np.concatenate([part.reshape(-1) for part in parts])
        aliased = any(np.may_share_memory(part, array) for part in parts)
        out = array
        if how.widens:
            out = np.empty(array.size, whole.dtype, like=array)
        elif aliased:
            out = np.empty_like(array)
        finish = None if out is array and how.plain else lambda: _finish(op, out, array, self.size)
        args = ((whole, sum(counts), how.datatype), (out, out.size, how.datatype), counts, how.op)
        nbytes = sum(counts) * array.itemsize
        return self._call_mpi(self.natives["reduce_scatter"], args, nbytes, timeout_s, async_op, finish)

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array], timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's `ins[j]` into rank j's `outs[i]`, by MPI_Alltoallv."""
        sent, received = Layout(ins, self.limit, fill=True), Layout(outs, self.limit, fill=False)

        def finish() -> None:
            sent.free()
            received.receive()

        args = (sent.message, received.message)
        return self._call_mpi(self.natives["all_to_all"], args, 0, timeout_s, async_op, finish)

    def barrier(self, timeout_s: float, async_op: bool = False) -> Work:
        """Return once every rank has called, by MPI_Ibarrier."""
        return self._call_mpi(self._barrier, (), 0, timeout_s, async_op)

    # ------------------------------------------------------------------ issuing

    def _call_mpi(
        self,
        native: Native,
        args: tuple[Any, ...],
        nbytes: int,
        timeout_s: float,
        async_op: bool,
        finish: Callable[[], object] | None = None,
    ) -> Work:
        """Make one call of MPI; `nbytes` must be the same on all ranks."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._on_device:
            cuda.synchronize()
        if async_op:
            return self._begin(native, [args], nbytes, timeout_s, finish)
        request = None
        try:
            try:
                number = self.turn.pop()
            except IndexError:
                number = self.await_turn(native.name, timeout_s)
            try:
                if nbytes < native.blocks_from:
                    request = native.begin(*args)
                elif self._gate is not None and self._gate.come(number):
                    native.block(*args)
                else:
                    request = self.make_after_meeting(native, args, timeout_s, number)
            finally:
                self.turn.append(number + 1)
            if request is not None:
                test = request.Test
                for _ in self.first_looks:
                    if test():
                        break
                else:
                    self.look_on(native.name, request, args, timeout_s, number)
        except BaseException as stop:
            self.stopped(native.name, request, args, stop)
        if finish is not None:
            finish()
        return COMPLETED

    def make_after_meeting(
        self, native: Native, args: tuple[Any, ...], timeout_s: float, number: int
    ) -> MPI.Request | None:
        """Make the call that all ranks can make; return the request if it is the nonblocking one."""
        met = self._meet_all(native.name, timeout_s, number)
        request = None
        if met.alike:
            native.block(*args)
        else:
            request = native.begin(*args)
        if met.stopped is not None:
            if request is not None:
                self.look_on(native.name, request, args, timeout_s, number)
            raise met.stopped
        return request

    def _begin(
        self,
        native: Native,
        calls: Sequence[tuple[Any, ...]],
        nbytes: int,
        timeout_s: float,
        finish: Callable[[], object] | None,
    ) -> Work:
        """Make calls of MPI that do not block, and that end together."""
        answers = None
        try:
            try:
                number = self.turn.pop()
            except IndexError:
                number = self.await_turn(native.name, timeout_s)
            last = number + len(calls) - 1
            try:
                requests, answers = self._pass_by(number, last) if nbytes >= native.blocks_from else ([], None)
                requests += [native.begin(*args) for args in calls]
                request = requests[0] if len(requests) == 1 else Requests(requests)
                buffers = calls, answers
                return self._started(RequestWork(self, native.name, timeout_s, request, buffers, finish, last))
            finally:
                self.turn.append(last + 1)
        except BaseException as stop:
            self.stopped(native.name, None, (calls, answers), stop)

    def await_turn(self, what: str, timeout_s: float) -> int:
        """Return this thread's number once another thread of this process has made its call."""
        number = 0

        def take() -> bool:
            nonlocal number
            try:
                number = self.turn.pop()
            except IndexError:
                return False
            return True

        if not self.wait_until(take, timeout_s):
            raise DistTimeoutError(f"{self.where(what)}: another thread's call has not ended after {timeout_s:g} s")
        return number

    def _several(
        self,
        native: Native,
        calls: Sequence[tuple[Any, ...]],
        array: Array,
        timeout_s: float,
        async_op: bool,
        finish: Callable[[], object] | None = None,
    ) -> Work:
        """Make the same call of MPI for each piece of an array; mostly there is one."""
        nbytes = array.nbytes
        if len(calls) == 1:
            return self._call_mpi(native, calls[0], nbytes, timeout_s, async_op, finish)
        if async_op:
            return self._begin(native, calls, nbytes, timeout_s, finish)
        deadline = Deadline(timeout_s)
        for args in calls:
            self._call_mpi(native, args, nbytes, deadline.remaining(), False)
        if finish is not None:
            finish()
        return COMPLETED


def _flat_bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _copy_own(target: Array, source: Array) -> None:
    """Copy this rank's own part, which MPI then finds in place."""
    if target.nbytes and address_of(target) != address_of(source):
        target.reshape(-1)[...] = source.reshape(-1)


def _finish(op: ReduceOp, total: Array, array: Array, size: int) -> None:
    """Put the reduced `total` into the caller's array, which it may be already."""
    if total is not array:
        op.finish(total, array, size)
    elif op.name == "AVG":
        np.divide(array, size, out=array)
