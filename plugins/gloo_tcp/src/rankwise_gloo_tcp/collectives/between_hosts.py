"""Collectives between hosts: small data goes with the comparison of the calls, large data straight to where it belongs,
and large reductions in segments, so that connections and processors are busy at the same time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from rankwise.backends import (
    Array,
    Call,
    Deadline,
    Prepared,
    ReduceOp,
    accumulation_dtype,
    counts,
)
from rankwise.backends import fitting_algorithm as fitting
from rankwise_gloo_tcp.collectives import hierarchy
from rankwise_gloo_tcp.collectives.along import Along, Moved, Reduced
from rankwise_gloo_tcp.collectives.hierarchy import Hosts, Long
from rankwise_gloo_tcp.collectives.means import Means
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, Opening, inline_nbytes
from rankwise_gloo_tcp.collectives.strategy import Strategy
from rankwise_gloo_tcp.collectives.tables import NETWORK, longest_along

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

#: The algorithms whose data goes along, or some of it.
_ALONG = ("along", "direct")


class BetweenHosts(Strategy):
    """The strategy of a group whose ranks share no memory."""

    def __init__(self, comm: GlooCommunicator) -> None:
        super().__init__(comm)
        self._opening = Opening(comm.engine, comm.rank, comm.size)

    @cached_property
    def hosts(self) -> Hosts:
        """Where the ranks are: each is alone on its host."""
        return Hosts(self.comm, [[rank] for rank in range(self.size)])

    def means(self, deadline: Deadline) -> Means:
        """Return what moves large data of a few ranks, until a deadline."""
        return Means(None, deadline)

    def choose(self, op: str, nbytes: int) -> str:
        """Return the algorithm of an operation; where a forced one is impossible, that of the table.

        Args:
            op: The operation.
            nbytes: How many bytes travel, in the dtype in which they do: something that all ranks know.
        """
        if self.size == 1:
            return "along"  # the others have a peer
        name = self.comm.selection.choose(op, nbytes, self.size)
        possible = {
            "along": self.size <= FEW_RANKS and nbytes <= inline_nbytes(self.size),
            "streamed": self.size <= FEW_RANKS * (2 if op == "all_reduce" else 1),
            "segments": self.size == 2,
            "hosts": False,
        }
        return name if possible.get(name, True) else fitting(op, nbytes, self.size, NETWORK).name

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does calls of a kind whose data, or some of it, goes along."""
        return self.along(call)

    def along(self, call: Call) -> Along | None:
        """Return the same, if the call is such a one."""
        if self.size > FEW_RANKS or call.op not in NETWORK or self._chosen(call) not in _ALONG:
            return None
        if call.array is None:
            return Along(self.comm, self._opening, call)
        kind = Moved if call.reduce_op is None else Reduced
        return kind(self.comm, self._opening, call)

    def along_nbytes(self, op: str) -> int:
        """Return up to how many bytes of a call go along; of those that only a rank itself knows none count."""
        return longest_along(op, NETWORK, inline_nbytes(self.size), lambda nbytes: self.choose(op, nbytes) in _ALONG)

    def _chosen(self, call: Call) -> str:
        """Return the algorithm of a call."""
        if call.reduce_op is not None:
            nbytes = sum(travelling(part, call.reduce_op) for part in call.ins or (call.array,))
        else:  # a rank may know only the sizes of its own parts: then only the number of ranks may decide
            nbytes = call.array.nbytes if call.op == "broadcast" else 0
        return self.choose(call.op, nbytes)

    def _long(self, algorithm: Callable[..., None], *args: Any) -> Long:
        return Long(self.hosts, self.means, algorithm, args)

    def _broadcast(self, call: Call) -> Long | None:
        is_long = self._chosen(call) == "segments"
        return self._long(hierarchy.send_segments, call.array, call.root) if is_long else None

    def _all_reduce(self, call: Call) -> Long | None:
        if self._chosen(call) != "streamed":
            return None
        few = 2 < self.size <= FEW_RANKS
        algorithm = hierarchy.all_reduce if few else hierarchy.all_reduce_streamed
        return self._long(algorithm, call.array, reducing(call))

    def _reduce_scatter(self, call: Call) -> Long | None:
        array, op = call.array, reducing(call)
        if self._chosen(call) != "streamed" or not op.is_plain_on(array.dtype):
            return None
        return self._long(hierarchy.reduce_scatter, array, call.ins or (), op)

    OWN: ClassVar = {"broadcast": _broadcast, "all_reduce": _all_reduce, "reduce_scatter": _reduce_scatter}

    def compare_and_run(self, call: Call, algorithm: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, and run a collective whose data moves after that."""
        if self.size > FEW_RANKS:
            super().compare_and_run(call, algorithm, sequence, deadline)
            return
        bare = Along(self.comm, self._opening, call)
        bare.compare((), sequence, deadline)
        algorithm(deadline, counts(bare.rows(sequence)))


def reducing(call: Call) -> ReduceOp:
    """Return the reduce op of a call that has one."""
    assert call.reduce_op is not None
    return call.reduce_op


def travelling(array: Array, op: ReduceOp) -> int:
    """Return how many bytes of an array travel: a factor is multiplied in before, in the dtype of the sum."""
    if op.factor is None:
        return int(array.nbytes)
    return int(array.size * accumulation_dtype(op.name, array.dtype).itemsize)
