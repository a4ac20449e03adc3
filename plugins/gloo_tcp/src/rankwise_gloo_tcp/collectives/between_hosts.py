"""Collectives between hosts: small data goes with the comparison of the calls, large data straight to where it belongs,
and large reductions in segments, so that connections and processors are busy at the same time."""

from __future__ import annotations

from collections.abc import Sequence
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
    mismatch,
    same_call,
)
from rankwise.backends import derived_collectives as derived
from rankwise.backends import fitting_algorithm as fitting
from rankwise_gloo_tcp.collectives import hierarchy, streams
from rankwise_gloo_tcp.collectives.copying import assign, pieces
from rankwise_gloo_tcp.collectives.hierarchy import Hosts, Means
from rankwise_gloo_tcp.collectives.means import Direct, Long
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, Opening, inline_nbytes
from rankwise_gloo_tcp.collectives.plans import Along, OneShot, Plan
from rankwise_gloo_tcp.collectives.small import SmallAllGather, SmallAllReduce, SmallBroadcast, SmallCall, is_small
from rankwise_gloo_tcp.collectives.strategy import Strategy
from rankwise_gloo_tcp.collectives.tables import NETWORK

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["BetweenHosts", "reducing", "travelling"]

_NOTHING = memoryview(b"")
#: What accumulates in a wider dtype does so in pieces, each of which may have a copy.
_PIECE_NBYTES = 4 << 20


class BetweenHosts(Strategy):
    """The strategy of a group whose ranks share no memory."""

    def __init__(self, comm: GlooCommunicator) -> None:
        super().__init__(comm)
        self._opening = Opening(comm.engine, comm.rank, comm.size)
        self._none = [0] * comm.size

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
            return "derived"  # the others have a peer
        name = self.comm.selection.choose(op, nbytes, self.size)
        along = name == "along" and (self.size > FEW_RANKS or nbytes > inline_nbytes(self.size))
        if along or (name == "streamed" and self.size > FEW_RANKS * 2) or (name == "segments" and self.size != 2):
            return fitting(op, nbytes, self.size, NETWORK).name
        return name

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does small calls of a kind, whose data goes along as it is."""
        array, op = call.array, call.reduce_op
        if self.size > FEW_RANKS or not (array is None or is_small(array, self.size)):
            return None
        if call.op == "barrier" and self._goes_along("barrier", 0):
            return SmallCall(self.comm, self._opening, call, self._none)
        # What lies between fields is copied too; NumPy's own copies leave it out.
        if call.op == "broadcast" and array.dtype.names is None and self._goes_along(call.op, array.nbytes):
            return SmallBroadcast(self.comm, self._opening, call)
        if call.op == "all_gather" and array.dtype.names is None and self._goes_along(call.op, 0):
            alike = all(out.size == array.size for out in call.outs or ())
            return SmallAllGather(self.comm, self._opening, call) if alike else None
        if call.op == "all_reduce" and op is not None and op.base is op and op.is_plain_on(array.dtype):
            return SmallAllReduce(self.comm, self._opening, call) if self._goes_along(call.op, array.nbytes) else None
        return None

    def _goes_along(self, op: str, nbytes: int) -> bool:
        return self.size == 1 or self.choose(op, nbytes) in ("along", "direct")

    def _broadcast(self, call: Call) -> Plan | Algorithm | None:
        array, root = call.array, call.root
        name = self.choose("broadcast", array.nbytes)
        if name == "derived":
            return None
        if name == "segments":
            return partial(_broadcast, self.comm, array, root)
        return Along(dict.fromkeys(range(self.size), array) if self.rank == root else {}, {root: array})

    def _all_reduce(self, call: Call) -> Plan | Algorithm | None:
        array, op = call.array, reducing(call)
        name = self.choose("all_reduce", travelling(array, op))
        if name == "derived":
            return None
        if name == "along":
            return OneShot(array, op, [array] * self.size)
        if 2 < self.size <= FEW_RANKS:
            return Long(self.hosts, self.means, hierarchy.all_reduce, (array, op))
        return partial(_all_reduce, self.comm, array, op)

    def _reduce(self, call: Call) -> Plan | None:
        array, op = call.array, reducing(call)
        if self.choose("reduce", travelling(array, op)) == "derived":
            return None
        return OneShot(array, op, [array] * self.size, call.root)

    def _reduce_scatter(self, call: Call) -> Plan | Algorithm | None:
        array, op, parts = call.array, reducing(call), call.ins or ()
        name = self.choose("reduce_scatter", sum(travelling(part, op) for part in parts))
        if name == "along":
            return OneShot(array, op, parts)
        if name == "derived":
            return None
        if self.size <= FEW_RANKS and op.is_plain_on(array.dtype):
            return Long(self.hosts, self.means, hierarchy.reduce_scatter, (array, parts, op))
        return partial(_reduce_scatter, self.comm, array, parts, op)

    def _exchange(self, call: Call) -> Plan | None:
        """Send what goes to each rank, and put what comes from there: one array to and from all, or the root."""
        # A rank may know only the sizes of its own parts: only the number of ranks may decide.
        if self.size > FEW_RANKS or self.choose(call.op, 0) == "derived":
            return None
        one = range(self.size) if call.root < 0 else (call.root,)
        sent = (
            dict.fromkeys(one, call.array) if call.op in ("all_gather", "gather") else dict(enumerate(call.ins or ()))
        )
        received = dict.fromkeys(one, call.array) if call.op == "scatter" else dict(enumerate(call.outs or ()))
        return Along(sent, received)

    OWN: ClassVar = {
        "broadcast": _broadcast,
        "all_reduce": _all_reduce,
        "reduce": _reduce,
        "reduce_scatter": _reduce_scatter,
        **dict.fromkeys(("all_gather", "gather", "scatter", "all_to_all"), _exchange),
    }

    def compare_and_run(self, call: Call, algorithm: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, with small data along, and run the collective."""
        if self.size > FEW_RANKS:
            super().compare_and_run(call, algorithm, sequence, deadline)
            return
        fingerprint, plan = call.fingerprint, algorithm if isinstance(algorithm, Plan) else None
        offered, expected = (plan.offer(self), plan.expect(self)) if plan else ([_NOTHING] * self.size, self._none)
        record = fingerprint.record(self.rank, sequence)
        rows, contents = self._opening.exchange(record, offered, expected, deadline)
        if not same_call(rows):
            raise mismatch(self.comm, fingerprint, sequence, deadline)
        if plan:
            plan.take(self, contents, deadline)
        else:
            algorithm(deadline, counts(rows))


def _carrier(us: GlooCommunicator) -> streams.Carrier:
    """Return what carries long data among all ranks of a group."""
    return us.engine if us.spread is None else us.spread(range(us.size))


def _broadcast(us: GlooCommunicator, array: Array, root: int, deadline: Deadline, counts: object) -> None:
    streams.broadcast(_carrier(us), array, root, deadline)


def _all_reduce(us: GlooCommunicator, array: Array, op: ReduceOp, deadline: Deadline, counts: object) -> None:
    if op.is_plain_on(array.dtype):
        streams.all_reduce(_carrier(us), array.reshape(-1), op, deadline)
        return
    for piece in pieces(array.reshape(-1), _PIECE_NBYTES):
        total = op.accumulator(piece)
        streams.all_reduce(_carrier(us), total, op.base, deadline)
        op.finish(total, piece, us.size)


def _reduce_scatter(
    us: GlooCommunicator, array: Array, parts: Sequence[Array], op: ReduceOp, deadline: Deadline, counts: object
) -> None:
    if not op.is_plain_on(array.dtype):
        derived.reduce_scatter(us, array, parts, op, deadline)
        return
    flat = array.reshape(-1)
    assign(flat, parts[us.rank].reshape(-1))
    streams.reduce_scatter(_carrier(us), flat, [part.reshape(-1) for part in parts], op, deadline)
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
