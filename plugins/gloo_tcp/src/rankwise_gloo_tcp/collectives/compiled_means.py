"""What moves large data among hosts, compiled: step by step, or noted once and carried out in C as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rankwise.backends import Array, Call, Deadline, ReduceOp
from rankwise_gloo_tcp.collectives.compiled import CallHooks, CompiledKind, arguments
from rankwise_gloo_tcp.collectives.hierarchy import Long
from rankwise_gloo_tcp.collectives.means import Means, alone
from rankwise_gloo_tcp.collectives.opening import Opening
from rankwise_gloo_tcp.collectives.relay import travelling
from rankwise_gloo_tcp.collectives.strategy import Strategy
from rankwise_gloo_tcp.collectives.streams import Lanes, Subset, longest_nbytes, segment_nbytes
from rankwise_gloo_tcp.collectives.wiring import make_wire
from rankwise_native import Calls, Program, Wire

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

#: What goes to each rank and what comes from there, by what that is reduced, and how much goes at a time; 0 where two
#: ranks trade.
_Exchange: TypeAlias = tuple[tuple[Array | None, ...], tuple[Array | None, ...], str | None, int]
#: A call of more steps, or of more data, is carried out step by step: there the steps cost little beside the data.
_MOST_STEPS, _MOST_NBYTES = 32, 64 << 20


class Wires:
    """The wires among some of a group's ranks each, which are made when they are needed.

    Args:
        comm: The group.
        hooks: What its compiled calls ask for.
    """

    def __init__(self, comm: GlooCommunicator, hooks: CallHooks) -> None:
        self._comm, self._hooks = comm, hooks
        self._made: dict[tuple[int, ...], Wire] = {}

    def among(self, between: Subset) -> Wire:
        """Return the wire among some ranks."""
        wire = self._made.get(between.ranks)
        if wire is None:
            room_nbytes = 0 if between.size == 2 else segment_nbytes(between.size)
            opening = Opening(self._comm.engine, between.rank, between.size, between.ranks, room_nbytes)
            wire = self._made[between.ranks] = make_wire(self._comm, opening, between.ranks, self._hooks)
        return wire


class Compiled(Means):
    """What moves large data in C, as far as that takes it.

    Args:
        local: The group of this host; None where this rank is alone on it.
        deadline: When all must be done.
        wires: The wires to other hosts.
    """

    def __init__(self, local: GlooCommunicator | None, deadline: Deadline, wires: Wires) -> None:
        super().__init__(local, deadline)
        self._wires = wires

    def exchange(self, between: Subset, sent: Lanes, taken: Lanes, op: ReduceOp | None = None) -> None:
        """Send flat arrays to some of the others; put what comes from some, or reduce it into one array."""
        wire = self._wires.among(between)
        if _splits(between, sent, taken) or not wire.exchange(*_exchanged(between, sent, taken, op), self.deadline):
            super().exchange(between, sent, taken, op)

    def reduce(self, between: Subset, total: Array, op: ReduceOp) -> None:
        """Reduce a flat array of two ranks, for both."""
        splits = between.splits(longest_nbytes(total, 2))
        if splits or not self._wires.among(between).reduce(total, op.name, self.deadline):
            super().reduce(between, total, op)


def noted(call: Call, strategy: Strategy, local: GlooCommunicator | None, calls: Calls, wires: Wires) -> Program | None:
    """Return what does a long call as a whole, in C; None if that does not take it.

    Args:
        call: The call; not its arrays, but others like them are noted.
        strategy: What says how it is done.
        local: The group of this host; None where this rank is alone on it.
        calls: The group's calls in C.
        wires: The wires to other hosts.
    """
    if type(call.array) is not np.ndarray or travelling(call) > _MOST_NBYTES:
        return None
    other = _like(call)
    long, notes = strategy.own(other), _Notes(local, wires)
    if not isinstance(long, Long):
        return None
    try:
        long.algorithm(long.hosts, notes, *long.args)
    except _NotCompiledError:
        return None
    return calls.program((other.array, *(other.ins or ()), *(other.outs or ())), tuple(notes.memory), notes.steps)


def _like(call: Call) -> Call:
    """Return a call like another on arrays of its own."""
    ins, outs = (
        [np.empty(part.shape, part.dtype) for part in parts] if parts else parts for parts in (call.ins, call.outs)
    )
    return replace(call, array=np.empty(call.array.shape, call.array.dtype), ins=ins, outs=outs)


class _NotCompiledError(Exception):
    """A call does something that C does not do."""


class _Notes(Means):
    """Notes what a call does, for `Calls.program`.

    Args:
        local: The group of this host; None where this rank is alone on it.
        wires: The wires to other hosts.

    Attributes:
        steps: What is done.
        memory: The arrays that are used beside those of the call.
    """

    def __init__(self, local: GlooCommunicator | None, wires: Wires) -> None:
        super().__init__(local, Deadline(0))  # nothing is done before it
        self._wires = wires
        self.steps: list[tuple[str, tuple[Any, ...]]] = []
        self.memory: list[Array] = []

    def on_host(self, call: Call) -> None:
        """Note a collective among the ranks of this host."""
        if self._local is None or self._local.size == 1:
            alone(self, call)
            return
        kind = self._local.prepare(call)
        if not isinstance(kind, CompiledKind):
            raise _NotCompiledError
        self._note("collective", kind, *arguments(call))

    def exchange(self, between: Subset, sent: Lanes, taken: Lanes, op: ReduceOp | None = None) -> None:
        """Note what goes to other hosts and comes from there."""
        if _splits(between, sent, taken):
            raise _NotCompiledError
        self._note("transfer", self._wires.among(between), *_exchanged(between, sent, taken, op))

    def reduce(self, between: Subset, total: Array, op: ReduceOp) -> None:
        """Note the reduction of an array of two ranks."""
        if between.splits(longest_nbytes(total, 2)):
            raise _NotCompiledError
        self._note("transfer", self._wires.among(between), total, op.name)

    def copy(self, target: Array, source: Array) -> None:
        """Note a copy."""
        self._note("copy", target, source)

    def combine(self, op: ReduceOp, total: Array, other: Array, left: bool) -> None:
        """Note the reduction of an array into another."""
        self._note("combine", op.name, total, other, left)

    def finish(self, op: ReduceOp, total: Array, target: Array, size: int) -> None:
        """Note an average in place."""
        if op.name != "AVG" or total is not target:
            raise _NotCompiledError
        self._note("average", total, size)

    def scratch(self, like: Array) -> Array:
        """Return memory like an array, which stands for some that C has."""
        self.memory.append(np.empty_like(like))
        return self.memory[-1]

    def _note(self, what: str, *given: Any) -> None:
        if len(self.steps) == _MOST_STEPS:
            raise _NotCompiledError
        self.steps.append((what, given))


def _splits(between: Subset, sent: Lanes, taken: Lanes) -> bool:
    """Tell whether something of an exchange goes over several connections, which C does not do."""
    longest = max((flat.nbytes for flat in (*sent.values(), *taken.values())), default=0)
    return between.splits(min(longest, between.segment_nbytes or longest))


def _exchanged(between: Subset, sent: Lanes, taken: Lanes, op: ReduceOp | None) -> _Exchange:
    """Return an exchange as C takes it."""
    ranks = range(between.size)
    return (
        tuple(map(sent.get, ranks)),
        tuple(map(taken.get, ranks)),
        None if op is None else op.name,
        between.segment_nbytes,
    )
