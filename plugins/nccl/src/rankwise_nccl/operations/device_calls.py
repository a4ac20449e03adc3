"""The collectives whose members are the devices of all ranks: those of the first rank, then those of the second, ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rankwise.backends import Array, ReduceOp, Work
from rankwise_nccl.lanes.devices_lane import DevicesLane
from rankwise_nccl.library.api import grouped
from rankwise_nccl.library.datatypes import BYTE
from rankwise_nccl.operations.packing import Packed
from rankwise_nccl.operations.reducer import Reducer

__all__ = ["DeviceCalls"]


class DeviceCalls:
    """The calls for several devices per process, on one array per device; all arrays have one size and dtype.

    Args:
        lane: The lane over the devices on which the arrays lie, in their order.
        rank: The group rank.
        begin: Begins an operation; see `NcclCommunicator`.
        reducer: Returns how NCCL reduces an array by an op.
    """

    def __init__(
        self,
        lane: DevicesLane,
        rank: int,
        begin: Callable[..., Work],
        reducer: Callable[[ReduceOp, Array], Reducer],
    ) -> None:
        self._lane, self._begin, self._reducer = lane, begin, reducer
        self._nccl = lane.api.nccl
        self._each = len(lane.seats)
        self._first = rank * self._each

    def broadcast(self, arrays: Sequence[Array], root: int, index: int, timeout_s: float) -> Work:
        """Copy the root's `arrays[index]` into every array of every rank, by ncclBroadcast."""
        member, nbytes = root * self._each + index, arrays[0].nbytes
        addresses = _addresses(arrays)

        def call(comms: Any, streams: Any) -> None:
            with grouped(self._nccl):
                for comm, stream, address in zip(comms, streams, addresses, strict=True):
                    comm.broadcast(address, address, nbytes, BYTE, member, stream)

        return self._begin("broadcast_multigpu", nbytes, self._lane, call, tuple(arrays), timeout_s)

    def all_reduce(self, arrays: Sequence[Array], op: ReduceOp, timeout_s: float) -> Work:
        """Reduce all arrays of all ranks into each of them, by ncclAllReduce."""
        how = self._reducer(op, arrays[0])
        count, addresses = arrays[0].size * how.width, _addresses(arrays)

        def call(comms: Any, streams: Any) -> None:
            with grouped(self._nccl):
                for comm, stream, address in zip(comms, streams, addresses, strict=True):
                    with how.number(comm) as number:
                        comm.allReduce(address, address, count, how.datatype, number, stream)

        return self._begin("all_reduce_multigpu", count, self._lane, call, tuple(arrays), timeout_s)

    def reduce(self, arrays: Sequence[Array], op: ReduceOp, root: int, index: int, timeout_s: float) -> Work:
        """Reduce all arrays of all ranks into the root's `arrays[index]`, by ncclReduce."""
        how = self._reducer(op, arrays[0])
        count, member = arrays[0].size * how.width, root * self._each + index
        ends = [(address, address if self._first + i == member else 0) for i, address in enumerate(_addresses(arrays))]

        def call(comms: Any, streams: Any) -> None:
            with grouped(self._nccl):
                for comm, stream, (source, target) in zip(comms, streams, ends, strict=True):
                    with how.number(comm) as number:
                        comm.reduce(source, target, count, how.datatype, number, member, stream)

        return self._begin("reduce_multigpu", count, self._lane, call, tuple(arrays), timeout_s)

    def all_gather(self, outputs: Sequence[Sequence[Array]], arrays: Sequence[Array], timeout_s: float) -> Work:
        """Copy all arrays of all ranks into each `outputs[i]`, which lies where `arrays[i]` does, by ncclAllGather."""
        nbytes, addresses = arrays[0].nbytes, _addresses(arrays)
        packed = self._packed(outputs)

        def call(comms: Any, streams: Any) -> None:
            targets = [into.address() for into in packed]
            with grouped(self._nccl):
                for comm, stream, address, target in zip(comms, streams, addresses, targets, strict=True):
                    comm.allGather(address, target, nbytes, BYTE, stream)

        def after(streams: Any) -> None:
            for into, stream in zip(packed, streams, strict=True):
                into.unpack(stream)

        buffers = (*arrays, *(array for row in outputs for array in row))
        return self._begin("all_gather_multigpu", nbytes, self._lane, call, buffers, timeout_s, after)

    def reduce_scatter(
        self, outputs: Sequence[Array], inputs: Sequence[Sequence[Array]], op: ReduceOp, timeout_s: float
    ) -> Work:
        """Reduce the lists of all members, and leave entry (rank, i) in that rank's `outputs[i]`, by ncclReduceScatter.

        `inputs[i]` lies where `outputs[i]` does, and keeps its content.
        """
        how = self._reducer(op, outputs[0])
        count, targets = outputs[0].size * how.width, _addresses(outputs)
        packed = self._packed(inputs)

        def call(comms: Any, streams: Any) -> None:
            for given, stream in zip(packed, streams, strict=True):
                given.pack(stream)
            sources = [given.address() for given in packed]
            with grouped(self._nccl):
                for comm, stream, source, target in zip(comms, streams, sources, targets, strict=True):
                    with how.number(comm) as number:
                        comm.reduceScatter(source, target, count, how.datatype, number, stream)

        buffers = (*outputs, *(array for row in inputs for array in row))
        return self._begin("reduce_scatter_multigpu", count, self._lane, call, buffers, timeout_s)

    def _packed(self, rows: Sequence[Sequence[Array]]) -> list[Packed]:
        return [Packed(self._lane.api, seat, row) for seat, row in zip(self._lane.seats, rows, strict=True)]


def _addresses(arrays: Sequence[Array]) -> list[int]:
    return [array.data.ptr for array in arrays]
