"""Collectives between hosts: small data goes with the comparison of the calls, large data straight to where it belongs,
and large reductions in segments, so that connections and processors are busy at the same time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from rankwise.backends import (
    Algorithm,
    Array,
    Call,
    Deadline,
    Prepared,
    ReduceOp,
    accumulation_dtype,
    counts,
)
from rankwise.backends import derived_collectives as derived
from rankwise.backends import fitting_algorithm as fitting
from rankwise_gloo_tcp.collectives import hierarchy, streams
from rankwise_gloo_tcp.collectives.along import Along, Moved, Reduced, carrier
from rankwise_gloo_tcp.collectives.copying import assign, pieces
from rankwise_gloo_tcp.collectives.hierarchy import Hosts, Means
from rankwise_gloo_tcp.collectives.means import Direct, Long
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, Opening, inline_nbytes
from rankwise_gloo_tcp.collectives.strategy import Strategy
from rankwise_gloo_tcp.collectives.tables import NETWORK

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["BetweenHosts", "reducing", "travelling"]

#: What accumulates in a wider dtype does so in pieces, each of which may have a copy.
_PIECE_NBYTES = 4 << 20


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
        return Direct(None, deadline)

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
            "streamed": self.size <= FEW_RANKS * 2,
            "segments": self.size == 2,
            "hosts": False,
        }
        return name if possible.get(name, True) else fitting(op, nbytes, self.size, NETWORK).name

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does calls of a kind whose data, or some of it, goes along."""
        return self.along(call)

    def along(self, call: Call) -> Along | None:
        """Return the same, if the call is such a one."""
        if self.size > FEW_RANKS or call.op not in NETWORK or self._chosen(call) not in ("along", "direct"):
            return None
        if call.array is None:
            return Along(self.comm, self._opening, call)
        kind = Moved if call.reduce_op is None else Reduced
        return kind(self.comm, self._opening, call)

    def _chosen(self, call: Call) -> str:
        """Return the algorithm of a call."""
        if call.reduce_op is not None:
            nbytes = sum(travelling(part, call.reduce_op) for part in call.ins or (call.array,))
        else:  # a rank may know only the sizes of its own parts: then only the number of ranks may decide
            nbytes = call.array.nbytes if call.op == "broadcast" else 0
        return self.choose(call.op, nbytes)

    def _broadcast(self, call: Call) -> Algorithm | None:
        return partial(_broadcast, self.comm, call.array, call.root) if self._chosen(call) == "segments" else None

    def _all_reduce(self, call: Call) -> Algorithm | None:
        array, op = call.array, reducing(call)
        if self._chosen(call) != "streamed":
            return None
        if 2 < self.size <= FEW_RANKS:
            return Long(self.hosts, self.means, hierarchy.all_reduce, (array, op))
        return partial(_all_reduce, self.comm, array, op)

    def _reduce_scatter(self, call: Call) -> Algorithm | None:
        array, op, parts = call.array, reducing(call), call.ins or ()
        if self._chosen(call) != "streamed":
            return None
        if self.size <= FEW_RANKS and op.is_plain_on(array.dtype):
            return Long(self.hosts, self.means, hierarchy.reduce_scatter, (array, parts, op))
        return partial(_reduce_scatter, self.comm, array, parts, op)

    OWN: ClassVar = {"broadcast": _broadcast, "all_reduce": _all_reduce, "reduce_scatter": _reduce_scatter}

    def own_collectives(self) -> Collection[str]:
        """Return those that have a way of their own where there are few ranks."""
        return NETWORK

    def compare_and_run(self, call: Call, algorithm: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, and run a collective whose data moves after that."""
        if self.size > FEW_RANKS:
            super().compare_and_run(call, algorithm, sequence, deadline)
            return
        bare = Along(self.comm, self._opening, call)
        bare.compare((), sequence, deadline)
        algorithm(deadline, counts(bare.rows(sequence)))


def _broadcast(us: GlooCommunicator, array: Array, root: int, deadline: Deadline, counts: object) -> None:
    streams.broadcast(carrier(us), array, root, deadline)


def _all_reduce(us: GlooCommunicator, array: Array, op: ReduceOp, deadline: Deadline, counts: object) -> None:
    if op.is_plain_on(array.dtype):
        streams.all_reduce(carrier(us), array.reshape(-1), op, deadline)
        return
    for piece in pieces(array.reshape(-1), _PIECE_NBYTES):
        total = op.accumulator(piece)
        streams.all_reduce(carrier(us), total, op.base, deadline)
        op.finish(total, piece, us.size)


def _reduce_scatter(
    us: GlooCommunicator, array: Array, parts: Sequence[Array], op: ReduceOp, deadline: Deadline, counts: object
) -> None:
    if not op.is_plain_on(array.dtype):
        derived.reduce_scatter(us, array, parts, op, deadline)
        return
    flat = array.reshape(-1)
    assign(flat, parts[us.rank].reshape(-1))
    streams.reduce_scatter(carrier(us), flat, [part.reshape(-1) for part in parts], op, deadline)
    if op.name == "AVG":
        op.finish(flat, flat, us.size)


def reducing(call: Call) -> ReduceOp:
    """Return the reduce op of a call that has one."""
    assert call.reduce_op is not None
    return call.reduce_op


def travelling(array: Array, op: ReduceOp) -> int:
    """Return how many bytes of an array travel: a factor is multiplied in before, in the dtype of the sum."""
    if op.factor is None:
        return int(array.nbytes)
    return int(array.size * accumulation_dtype(op.name, array.dtype).itemsize)
