"""What moves large data among hosts step by step, for the algorithms of `hierarchy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankwise.backends import Array, Call, Deadline, ReduceOp
from rankwise_gloo_tcp.collectives import streams
from rankwise_gloo_tcp.collectives.copying import assign
from rankwise_gloo_tcp.collectives.streams import Lanes, Subset

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator


def alone(by: Means, call: Call) -> None:
    """Carry out what a rank does on its host where it is the only one there."""
    target = call.array if call.outs is None else call.outs[0]
    source = call.array if call.ins is None else call.ins[0]
    if target is not source:
        by.copy(target, source)


class Means:
    """What moves the data: the group of this host, and messages between hosts. Others do it in C, or note it.

    Args:
        local: The group of this host; None where this rank is alone on it.
        deadline: When all must be done.
    """

    def __init__(self, local: GlooCommunicator | None, deadline: Deadline) -> None:
        self._local, self.deadline = local, deadline

    def on_host(self, call: Call) -> None:
        """Carry a collective out among the ranks of this host."""
        if self._local is None:
            alone(self, call)
        else:
            self._local.run(call, self.deadline.remaining())

    def exchange(self, between: Subset, sent: Lanes, taken: Lanes, op: ReduceOp | None = None) -> None:
        """Send flat arrays to some of the others; put what comes from some, or reduce it into one array."""
        if between.segment_nbytes == 0:
            other = 1 - between.rank
            streams.trade(between, sent.get(other), taken.get(other), op, self.deadline)
        else:
            streams.Exchange(between, sent, taken, op, between.segment_nbytes).finish(self.deadline)

    def reduce(self, between: Subset, total: Array, op: ReduceOp) -> None:
        """Reduce a flat array of all ranks, for all; an average is divided too."""
        streams.all_reduce(between, total, op, self.deadline)

    def copy(self, target: Array, source: Array) -> None:
        """Copy an array into another of the same size."""
        assign(target, source)

    def combine(self, op: ReduceOp, total: Array, other: Array, left: bool) -> None:
        """Reduce an array into another, as the left operand or as the right one."""
        op.combine(total, other, left)

    def finish(self, op: ReduceOp, total: Array, target: Array, size: int) -> None:
        """Put what ranks have reduced by an op to where it belongs."""
        op.finish(total, target, size)

    def scratch(self, like: Array) -> Array:
        """Return memory like an array."""
        return np.empty_like(like)


class Within(Means):
    """What moves data at the board of a group that is on one host, within one of its own calls.

    Args:
        comm: The group.
        deadline: When all must be done.
    """

    def __init__(self, comm: GlooCommunicator, deadline: Deadline) -> None:
        super().__init__(comm, deadline)
        self._comm = comm

    def on_host(self, call: Call) -> None:
        """Carry a collective out, which is no call of the group and so has no number."""
        prepared = self._comm.prepare(call)
        prepared.run(prepared.bind(call), 0, self.deadline)
