"""What a communicator asks of whatever runs its collectives; by itself all of them as the core derives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankwise.backends import Call, Caller, Communicator, Deadline, Prepared, Shortcuts, is_sparse
from rankwise.errors import DistError

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

#: The collectives that are not derived, and what of a call they are given, by C and by the algorithms of `hierarchy`.
ARGUMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "all_reduce": ("array", "reduce_op"),
        "broadcast": ("array", "root"),
        "reduce": ("array", "reduce_op", "root"),
        "all_gather": ("outs", "array"),
        "reduce_scatter": ("array", "ins", "reduce_op"),
        "all_to_all": ("outs", "ins"),
        "gather": ("array", "outs", "root"),
        "scatter": ("array", "ins", "root"),
        "barrier": (),
    }
)


class Strategy:
    """Which algorithm each collective of one group takes.

    Arrays that are not NumPy's go by way of the host or in parts, whatever leads from rank to rank.
    """

    __slots__ = ("comm", "lower", "rank", "size")

    #: What chooses the algorithm of an operation, as a function of the strategy and the call, or returns None; what is
    #: not here is derived.
    OWN: ClassVar[Mapping[str, Callable[[Any, Call], Any]]] = {}
    #: The group of this host alone, where the strategy uses one.
    local: GlooCommunicator | None = None

    def __init__(self, comm: GlooCommunicator) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        #: Returns what takes the steps of a collective that is described, as a function of the strategy and the
        #: call; None where it goes by messages.
        self.lower: Callable[[Any, Call], Any] | None = None

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does all calls of a kind, of NumPy's arrays, where much of them is the same each time."""
        return None

    def along_nbytes(self, op: str) -> int:
        """Return up to how many bytes of a call go with the comparison between hosts; -1 if none do."""
        return -1

    def algorithm(self, call: Call) -> Any:
        """Return what `compare_and_run` runs."""
        if call.array is None or type(call.array) is np.ndarray:
            return self.own(call) or call.derived(self.comm)
        if is_sparse(call.array):
            return call.derived(self.comm)
        return call.staged(self.comm)

    def own(self, call: Call) -> Any:
        """Return the algorithm of this strategy's own for a call of NumPy's arrays; None where it is derived."""
        own = self.OWN.get(call.op)
        if own is not None:
            return own(self, call)
        return None if call.describe is None or self.lower is None else self.lower(self, call)

    def compare_and_run(self, call: Call, algorithm: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, and run the collective."""
        Communicator.compare_and_run(self.comm, call, algorithm, sequence, deadline)

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return the fast path of a group's plain calls."""
        return Communicator.shortcuts(self.comm, group)

    def forget(self) -> None:
        """Forget what is kept for kinds of calls, as the communicator does."""

    def give_up(self, error: DistError) -> None:
        """End what is pending in groups of the strategy's own."""

    def close(self) -> None:
        """Give back what belongs to the strategy alone."""
