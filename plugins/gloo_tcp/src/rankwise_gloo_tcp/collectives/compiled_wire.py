"""The fast path between hosts, compiled: over the sockets of the engine, by the caller's own thread."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Protocol

from rankwise.backends import Call, Caller, Deadline, Prepared, Shortcuts
from rankwise_gloo_tcp.board.compiled import WIRE_WAYS
from rankwise_gloo_tcp.collectives.between_hosts import BetweenHosts, reducing
from rankwise_gloo_tcp.collectives.compiled import (
    COMPILED_OPS,
    CompiledKind,
    arguments,
    call_of,
    messages,
    served,
)
from rankwise_gloo_tcp.collectives.compiled_means import Compiled, Wires, noted
from rankwise_gloo_tcp.collectives.hierarchy import Means
from rankwise_gloo_tcp.collectives.relay import told
from rankwise_gloo_tcp.collectives.streams import longest_nbytes
from rankwise_gloo_tcp.collectives.wiring import WireCallHooks, make_wire
from rankwise_native import Calls, Program, Relay, Trail, Wire

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["LEFT", "CompiledBetweenHosts", "InC"]

#: The way of a kind of call that C leaves to Python, kept so that its steps are not noted each time.
LEFT = 0
_RECORD = struct.Struct("<QQQQ")


class CompiledBetweenHosts(BetweenHosts):
    """The strategy of a few ranks that share no memory, where the compiled parts are installed."""

    def __init__(self, comm: GlooCommunicator) -> None:
        super().__init__(comm)
        self._hooks = WireCallHooks(comm)
        self.carrier = make_wire(comm, self._opening, range(comm.size), self._hooks)
        self.calls = Calls(self.carrier, comm.order.turn, COMPILED_OPS, self._hooks)
        self._wires = Wires(comm, self._hooks)

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does a kind of call whose data goes along, in C as far as that takes it."""
        small = self.along(call)
        way = self._way(call) if small is None else small.way
        if way is not None:
            return InC(self, call, WIRE_WAYS[way], small)
        program = None if small is not None else noted(call, self, None, self.calls, self._wires)
        if program is None:
            return small if call.describe is None else InC(self, call, LEFT, None)
        return InC(self, call, WIRE_WAYS["PROGRAM"], None, program)

    def means(self, deadline: Deadline) -> Means:
        """Return what moves large data, until a deadline."""
        return Compiled(None, deadline, self._wires)

    def _way(self, call: Call) -> str | None:
        """Return the way of a call that two ranks make in segments, over one connection."""
        if self._is_streamed(call):
            return None if self._splits(longest_nbytes(call.array, 2)) else "SWAP_STREAM"
        if call.op == "broadcast" and self.choose("broadcast", call.array.nbytes) == "segments":
            return None if self._splits(call.array.nbytes) else "SWAP_SEGMENTS"
        return None

    def _is_streamed(self, call: Call) -> bool:
        """Tell whether a call is an all_reduce of two ranks whose segments are reduced as they are."""
        if call.op != "all_reduce" or self.size != 2 or not reducing(call).is_plain_on(call.array.dtype):
            return False
        return self.choose("all_reduce", call.array.nbytes) == "streamed"

    def _splits(self, nbytes: int) -> bool:
        """Tell whether messages between two ranks go over several connections, which C does not do."""
        return self.hosts.among(range(self.size)).splits(nbytes)

    def forget(self) -> None:
        """Forget the kinds of calls."""
        self.calls.forget()

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return the fast path of a group's plain calls and messages, in C."""
        found = served(self.calls, self._hooks, group, self.comm)
        if isinstance(group.trail, Trail):
            self.carrier.serve(group.trail)
            found.update(messages(self.carrier))
        return Shortcuts(**found)


class _CompiledStrategy(Protocol):
    """A strategy that is compiled."""

    comm: GlooCommunicator
    rank: int
    calls: Calls

    @property
    def carrier(self) -> Wire | Relay:
        """What knows how long this rank has waited."""

    def algorithm(self, call: Call) -> Any:
        """Return which way a collective goes in Python."""


class InC(CompiledKind):
    """One kind of call that C may know; if it does not take one, that is done in Python."""

    def __init__(
        self, strategy: _CompiledStrategy, call: Call, way: int, small: Prepared | None, program: Program | None = None
    ) -> None:
        self._strategy, self.way, self._small = strategy, way, small
        #: The steps of a long call among several hosts.
        self.program = program
        self.fingerprint = call.fingerprint
        self._say(along=True)

    def _say(self, along: bool) -> None:
        self.about = (*_RECORD.unpack(told(self.fingerprint, self._strategy.rank, 0, along)[8:]), 0)

    def keep_apart(self) -> None:
        """Send no data along from now on: that of all ranks moves after the comparison."""
        self.way = WIRE_WAYS["PROGRAM"]
        self._say(along=False)

    def bind(self, call: Call) -> Any:
        """Return what C is given of the call."""
        return arguments(call)

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare a call with those of the others, and carry it out."""
        strategy = self._strategy
        waited_ns = strategy.carrier.waited_ns
        name, args = given
        if strategy.calls.run(name, args, sequence, deadline):
            if strategy.carrier.waited_ns != waited_ns:
                strategy.comm.on_wait(strategy.carrier.waited_ns - waited_ns)
            return
        call = call_of(given, strategy.comm)
        if self._small is not None:
            self._small.run(self._small.bind(call), sequence, deadline)
        else:
            strategy.comm.compare_and_run(call, strategy.algorithm(call), sequence, deadline)
