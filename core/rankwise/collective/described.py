"""Collectives that are described: in steps on arrays, which a backend may take by whatever means it has.

A description asks some `Steps` for each thing that it does to an array. Those of the core move messages; a backend may
note the steps once for each kind of call, and take all of them in one call from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from rankwise.basics.arrays import Array
from rankwise.basics.deadline import Deadline
from rankwise.basics.reduce_op import ReduceOp
from rankwise.collective.algorithms import Rounds
from rankwise.collective.executor import Executor, PointToPoint

#: The rounds of one rank, as a function of it, the number of ranks, and perhaps more that all ranks know alike.
Algorithm: TypeAlias = Callable[..., Rounds]


class Steps(Protocol):
    """What a collective is made of; each step is taken, or noted, when its method returns.

    What an array holds may not decide which steps there are: they are the same for all calls of a kind.

    Attributes:
        rank: This rank.
        size: The number of ranks.
    """

    rank: int
    size: int

    def accumulator(self, op: ReduceOp, array: Array) -> Array:
        """Return a new flat copy of an array to reduce into, in the dtype that the reduction is done in."""

    def rounds(
        self,
        algorithm: Algorithm,
        source: Sequence[Array],
        target: Sequence[Array],
        op: ReduceOp | None = None,
        *args: Any,
    ) -> None:
        """Take all rounds of an algorithm.

        Args:
            algorithm: The rounds of any rank, by its number, the number of ranks, and `args`: a function at the top of
                its module, as it is called once for all calls.
            source: The blocks that are sent, flat arrays.
            target: Those that are received into; they may be the same.
            op: By what they are combined.
            args: What else all ranks know alike, such as the root.
        """

    def copy(self, target: Array, source: Array) -> None:
        """Copy an array into another of the same size."""

    def finish(self, op: ReduceOp, total: Array, target: Array) -> None:
        """Write the reduced accumulator of all ranks into an array, in its shape and dtype."""


#: Says what is done for a `Call`, whose module may know this one.
Describe: TypeAlias = "Callable[[Steps, Any], None]"


class Described:
    """How a collective is derived that is described, for its line of `OPERATIONS`.

    Args:
        describe: Its description.
    """

    def __init__(self, describe: Describe) -> None:
        self.describe = describe

    def __call__(self, comm: PointToPoint, call: Any, deadline: Deadline, counts: Sequence[int]) -> None:
        """Carry it out over messages."""
        self.describe(_OverMessages(comm, deadline), call)


class _OverMessages:
    """The steps over a communicator's messages."""

    def __init__(self, comm: PointToPoint, deadline: Deadline) -> None:
        self._comm, self._deadline = comm, deadline
        self.rank, self.size = comm.rank, comm.size

    def accumulator(self, op: ReduceOp, array: Array) -> Array:
        return op.accumulator(array)

    def rounds(
        self,
        algorithm: Algorithm,
        source: Sequence[Array],
        target: Sequence[Array],
        op: ReduceOp | None = None,
        *args: Any,
    ) -> None:
        Executor(self._comm, source, target, self._deadline, op).run(algorithm(self.rank, self.size, *args))

    def copy(self, target: Array, source: Array) -> None:
        target[...] = source.reshape(target.shape)

    def finish(self, op: ReduceOp, total: Array, target: Array) -> None:
        op.finish(total, target, self.size)
