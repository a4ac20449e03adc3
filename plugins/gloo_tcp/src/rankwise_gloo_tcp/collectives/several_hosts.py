"""Groups whose ranks are on several hosts, more than one on some: shared memory inside, the network between.

Each host has a group of its own. What the ranks are about to do goes from all ranks of a host to its first, from there
to the first of each other host, and back; small data goes with it. Large data moves as `hierarchy` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rankwise.backends import (
    Call,
    Deadline,
    Prepared,
    mismatch,
    same_call,
)
from rankwise.backends import fitting_algorithm as fitting
from rankwise.errors import DistError
from rankwise_gloo_tcp.collectives import hierarchy
from rankwise_gloo_tcp.collectives.between_hosts import reducing
from rankwise_gloo_tcp.collectives.hierarchy import Hosts, Long
from rankwise_gloo_tcp.collectives.means import Means
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS
from rankwise_gloo_tcp.collectives.relay import (
    EACH_ITS_OWN,
    RELAYED,
    Relay,
    Relayed,
    contributed,
    rows_of,
    told,
    travelling,
)
from rankwise_gloo_tcp.collectives.strategy import ARGUMENTS, Strategy
from rankwise_gloo_tcp.collectives.tables import MIXED, longest_along, of_one_rank

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

#: More than goes along with any call.
_LARGE_NBYTES = 1 << 62


class SeveralHosts(Strategy):
    """The strategy of a group on several hosts.

    Args:
        comm: The group.
        hosts: The ranks of each host.
        local: The group of this host, which is closed with this strategy.
    """

    def __init__(self, comm: GlooCommunicator, hosts: list[list[int]], local: GlooCommunicator) -> None:
        super().__init__(comm)
        self._hosts = Hosts(comm, hosts)
        self.local: GlooCommunicator = local
        local.on_failure = comm.fail
        local.engine.progress_lock.in_background = comm.order.serves_here
        firsts = self.hosts.subset([host[0] for host in hosts]) if self.hosts.place == 0 else None
        self._relay = Relay(comm, hosts, local, firsts)

    @property
    def hosts(self) -> Hosts:
        """Where the ranks are."""
        return self._hosts

    def close(self) -> None:
        """Tell the peers on this host that this rank leaves."""
        self.local.on_failure = None
        self.local.shutdown()

    def give_up(self, error: DistError) -> None:
        """End what is pending on this host."""
        self.local.give_up(error)

    def means(self, deadline: Deadline) -> Means:
        """Return what moves large data, until a deadline."""
        return Means(self.local, deadline)

    def _choose(self, call: Call) -> str:
        """Return the algorithm of a call, by what all ranks know of it, or this one alone, which tells them."""
        op, parts = call.op, [*(call.ins or ()), *(call.outs or ())]
        nbytes = call.array.nbytes * self.size if op in EACH_ITS_OWN else travelling(call)
        name = self.comm.selection.choose_mixed(op, nbytes, self.size)
        fits = nbytes <= of_one_rank(op, self._relay.along_nbytes, self.size)
        if name == "along" and not (fits and all(part.size == call.array.size for part in parts)):
            return fitting(op, _LARGE_NBYTES, self.size, MIXED).name
        return name

    # ------------------------------------------------------------------ collectives

    def along_nbytes(self, op: str) -> int:
        """Return up to how many bytes of a call go with the comparison, if all parts are of one size."""
        most, choose = of_one_rank(op, self._relay.along_nbytes, self.size), self.comm.selection.choose_mixed
        return longest_along(op, MIXED, most, lambda nbytes: choose(op, nbytes, self.size) == "along")

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does small calls of a kind, whose data goes with the comparison."""
        goes_along = call.op == "barrier" or (call.op in RELAYED and self._choose(call) == "along")
        return Relayed(self._relay, call, self._follow) if goes_along else None

    def _follow(self, call: Call, deadline: Deadline, counts: Sequence[int]) -> None:
        """Move the data of a call that has not all come along."""
        self.algorithm(call)(deadline, counts)

    def _long(self, call: Call) -> Long | None:
        """Return the algorithm of a call with what it works on, unless the core's is to be taken."""
        op = call.op
        if op in ("all_gather", "reduce_scatter") and not self._trades:
            return None
        if op == "reduce_scatter" and not reducing(call).is_plain_on(call.array.dtype):
            return None
        if op in EACH_ITS_OWN:  # where a rank knows the sizes of its own parts only
            chosen = self.comm.selection.choose_mixed(op, _LARGE_NBYTES, self.size)
        else:
            chosen = self._choose(call)
        given = [getattr(call, name) for name in ARGUMENTS[op]]
        return None if chosen == "derived" else Long(self.hosts, self.means, getattr(hierarchy, op), tuple(given))

    @property
    def _trades(self) -> bool:
        """Whether each rank answers for few ranks of other hosts."""
        return self.hosts.even or self.hosts.most_partners <= FEW_RANKS

    OWN: ClassVar = dict.fromkeys(RELAYED, _long)

    # ------------------------------------------------------------------ comparing the calls

    def compare_and_run(self, call: Call, algorithm: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, host by host, and run the collective."""
        fingerprint = call.fingerprint
        records = self._compare(told(fingerprint, self.rank, sequence, along=False), deadline)
        rows = rows_of(records)
        if not same_call(rows):
            raise mismatch(self.comm, fingerprint, sequence, deadline)
        algorithm(deadline, contributed(rows))

    def _compare(self, record: bytes, deadline: Deadline) -> bytes:
        """Give this rank's record to all others, and return all records."""
        return self._relay.compare(record, None, deadline)
