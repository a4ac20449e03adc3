"""`Call`: one collective on one rank, made once, where its arguments have been checked; and the table of all there are.

A new collective is a line of `OPERATIONS`: what of a call must fit together, and the rounds that every backend derives
it by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from rankwise.basics.arrays import Array, dtype_text, is_sparse
from rankwise.basics.deadline import Deadline
from rankwise.basics.devices import kind_of
from rankwise.basics.reduce_op import ReduceOp
from rankwise.collective.executor import PointToPoint
from rankwise.collective.fingerprint import Fingerprint

if TYPE_CHECKING:
    from rankwise.basics.memory_order import Reordered
    from rankwise.collective.described import Describe

#: What moves the data of a call, once the calls have been compared; it is told how many elements each rank contributes.
Algorithm: TypeAlias = Callable[[Deadline, Sequence[int]], None]
#: What of a call goes into its fingerprint, beside what it is called, its reduce op, root and dtype.
Told: TypeAlias = dict[str, Any]
#: What carries a call out over a communicator's messages.
Derive: TypeAlias = "Callable[[PointToPoint, Call, Deadline, Sequence[int]], None]"


@dataclass(slots=True, eq=False)
class Call:
    """One rank's call of one collective. Backends read it, and keep it no longer than the call takes.

    Attributes:
        op: The collective's name, a key of `OPERATIONS`.
        array: What this rank contributes or gets; for an `all_to_all` what it keeps, for a barrier None.
        reduce_op: How to reduce.
        root: The root's group rank.
        ins: One array for each group rank, of any sizes, that goes there.
        outs: Likewise what comes from there.
        remark: What else must be the same on all ranks, as an addition to the dtype.
        together: Of several arrays that are reduced as one how many, and what stands for their shapes, both as numbers
            below zero; the same on all ranks too.
        reordered: Of an array that lies in another memory order than C's that; `array` is its memory.
    """

    op: str
    array: Array = None
    reduce_op: ReduceOp | None = None
    root: int = -1
    ins: Sequence[Array] | None = None
    outs: Sequence[Array] | None = None
    remark: str = ""
    together: tuple[int, ...] = ()
    reordered: Reordered | None = None

    @property
    def fingerprint(self) -> Fingerprint:
        """What the ranks compare."""
        if self.array is None:
            return Fingerprint(self.op)
        reduce_op = "" if self.reduce_op is None else self.reduce_op.name
        told = OPERATIONS[self.op].told(self)
        count = math.prod(told["shape"]) if "shape" in told else self.array.size
        dtype = dtype_text(self.array.dtype) + self.remark
        if self.together:
            many, shapes = self.together
            dtype += f" in {-many} arrays ({-shapes:x})"
        order = 0 if self.reordered is None else self.reordered.mark
        return Fingerprint(self.op, reduce_op, self.root, dtype, count, **told, order=order)

    @property
    def kind(self) -> Hashable:
        """What this call has in common with others that one `Prepared` does; None where nothing is kept for it."""
        array, option = self.array, self.root if self.reduce_op is None else self.reduce_op.name
        if array is None:
            return (self.op,)
        if type(array) is not np.ndarray:
            return None
        if self.ins is None and self.outs is None:
            both = self.reduce_op is not None and self.root >= 0
            marks = self.together if self.reordered is None else (self.reordered.mark,)
            return self.op, (option, self.root) if both else option, array.dtype, array.shape + marks
        return self.op, option, array.dtype, array.size, _sizes(self.ins), _sizes(self.outs)

    @property
    def describe(self) -> Describe | None:
        """What says in which steps the collective is derived; None where that is not described."""
        return getattr(OPERATIONS[self.op].derive, "describe", None)

    def derived(self, comm: PointToPoint) -> Algorithm:
        """Return how the core does it, over messages alone; by way of the host where a device does not compute."""
        if is_sparse(self.array):
            from rankwise.collective import sparse  # which most programs need not load

            return lambda deadline, counts: sparse.all_reduce(comm, self.array, deadline)
        if (device := kind_of(self.array)) is not None and not device.computes:
            return self.staged(comm)
        derive = OPERATIONS[self.op].derive
        return lambda deadline, counts: derive(comm, self, deadline, counts)

    def staged(self, comm: PointToPoint) -> Algorithm:
        """Return how the core does it with arrays of a device by way of the host; all ranks must do so."""
        from rankwise.collective.staged import staged  # of use to programs with devices alone

        return staged(comm, self, OPERATIONS[self.op].derive)


class Prepared(Protocol):
    """What does one kind of call of one communicator, as often as it is made.

    It may also have `bound(given)`, which returns what does as `run` with the same arrays each time, and is faster:
    that takes the number of a call and its deadline.

    Attributes:
        fingerprint: What all ranks compare, for errors.
    """

    @property
    def fingerprint(self) -> Fingerprint:
        """What all ranks compare."""

    def bind(self, call: Call) -> Any:
        """Return what `run` takes of a call of this kind.

        Of a reduction of one array that is the array and the reduce op, of a broadcast a list of what is sent and one
        of what is received, of a barrier None: fast calls hand over the same without a `Call`.
        """

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, and carry this one out, whose turn it is.

        Args:
            given: What `bind` has returned.
            sequence: The number of the call.
            deadline: When all must be there.
        """


class Operation(NamedTuple):
    """One collective.

    Attributes:
        told: What must fit together, of one rank's call.
        derive: Runs it over the communicator's messages; if it is a `Described`, backends may take its steps otherwise.
        reduces: It takes a reduce op.
        rooted: It takes a root.
    """

    told: Callable[[Call], Told]
    derive: Derive
    reduces: bool = False
    rooted: bool = False


def same_shape(call: Call) -> Told:
    """All ranks have arrays of one shape."""
    return {"shape": tuple(call.array.shape)}


def same_parts(call: Call) -> Told:
    """All ranks have the same parts."""
    return {"parts": _sizes(call.ins or call.outs)}


def to_root(call: Call) -> Told:
    """The root has a part for each rank, of the size of what that rank sends."""
    return {"sent": ((call.root, call.array.size),), "received": _numbered(call.outs)}


def from_root(call: Call) -> Told:
    """The root has a part for each rank, of the size of what that rank gets."""
    return {"sent": _numbered(call.ins), "received": ((call.root, call.array.size),)}


def each_pair(call: Call) -> Told:
    """Each two ranks agree for themselves."""
    return {"sent": _numbered(call.ins), "received": _numbered(call.outs)}


def nothing(call: Call) -> Told:
    """There is nothing to compare but the call itself."""
    return {}


def _sizes(arrays: Sequence[Array] | None) -> tuple[int, ...]:
    return tuple([array.size for array in arrays or ()])


def _numbered(arrays: Sequence[Array] | None) -> tuple[tuple[int, int], ...]:
    return tuple([(peer, array.size) for peer, array in enumerate(arrays or ())])


def _derive(name: str, *fields: str) -> Derive:
    """Return what runs a function of `derived` on these fields of a call, among them perhaps the ranks' counts."""

    def derive(comm: PointToPoint, call: Call, deadline: Deadline, counts: Sequence[int]) -> None:
        from rankwise.collective import derived  # which a backend with collectives of its own need not load

        run: Callable[..., None] = getattr(derived, name)
        run(comm, *[counts if field == "counts" else getattr(call, field) for field in fields], deadline)

    return derive


def _compared(comm: PointToPoint, call: Call, deadline: Deadline, counts: Sequence[int]) -> None:
    """Do nothing: the comparison of the calls was all."""


#: All collectives by name, in the order of the tables.
OPERATIONS: dict[str, Operation] = {
    "broadcast": Operation(same_shape, _derive("broadcast", "array", "root"), rooted=True),
    "all_reduce": Operation(same_shape, _derive("all_reduce", "array", "reduce_op"), reduces=True),
    "reduce": Operation(same_shape, _derive("reduce", "array", "reduce_op", "root"), reduces=True, rooted=True),
    "all_gather": Operation(same_parts, _derive("all_gather", "outs", "array")),
    "gather": Operation(to_root, _derive("gather", "outs", "array", "root", "counts"), rooted=True),
    "scatter": Operation(from_root, _derive("scatter", "array", "ins", "root", "counts"), rooted=True),
    "reduce_scatter": Operation(same_parts, _derive("reduce_scatter", "array", "ins", "reduce_op"), reduces=True),
    "all_to_all": Operation(each_pair, _derive("all_to_all", "outs", "ins")),
    "barrier": Operation(nothing, _compared),
}
