"""The fast path between hosts, compiled: over the sockets of the engine, by the caller's own thread, and at the board
of each host that has several ranks."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from rankwise.backends import Call, Caller, Deadline, Fingerprint, Prepared, Shortcuts
from rankwise_gloo_tcp.board.compiled import WAYS
from rankwise_gloo_tcp.board.native_board import NativeBoard
from rankwise_gloo_tcp.collectives.between_hosts import BetweenHosts
from rankwise_gloo_tcp.collectives.compiled import COMPILED_OPS, CallHooks, CompiledKind, messages, served
from rankwise_gloo_tcp.collectives.compiled_means import Compiled, Wires, noted
from rankwise_gloo_tcp.collectives.means import Means
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, RECORD_NBYTES, Opening, inline_nbytes
from rankwise_gloo_tcp.collectives.relay import EACH_ITS_OWN, told
from rankwise_gloo_tcp.collectives.several_hosts import SeveralHosts
from rankwise_gloo_tcp.collectives.strategy import Strategy
from rankwise_gloo_tcp.collectives.tables import along_nbytes
from rankwise_gloo_tcp.collectives.wiring import make_wire
from rankwise_native import Calls, Program, Relay, Trail, Wire

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

#: The way of a kind of call that C leaves to Python, kept so that its steps are not noted each time.
_LEFT = 0
_RECORD = struct.Struct("<QQQQ")
_NO_STEP = (0, 0, 0, 0, 0)


class InC(CompiledKind):
    """One kind of call between hosts, whose data goes along, or that has steps, or both."""

    def __init__(
        self, comm: GlooCommunicator, fingerprint: Fingerprint, along: bool = True, program: Program | None = None
    ) -> None:
        super().__init__(comm, fingerprint)
        #: Its steps are those of a long call, or of one whose data may not all have come along.
        self.program, self.is_prepared = program, along
        self.way = WAYS["ALONG"] if along else _LEFT if program is None else WAYS["PROGRAM"]
        self._say(along)

    def _say(self, along: bool) -> None:
        self.about = (*_RECORD.unpack(told(self.fingerprint, self.comm.rank, 0, along)[8:]), 0)

    def keep_apart(self) -> None:
        """Send no data along from now on: that of all ranks moves after the comparison."""
        self.way = WAYS["PROGRAM"]
        self._say(along=False)


class _Compiled(Strategy):
    """What the strategies below have in common, before those that they are made of."""

    calls: Calls
    carrier: Wire | Relay
    _hooks: CallHooks
    _wires: Wires

    def _begin(self, carrier: Wire | Relay) -> None:
        self.carrier, self._wires = carrier, Wires(self.comm, self._hooks)
        self.calls = Calls(carrier, self.comm.order.turn, COMPILED_OPS, self._hooks)

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does a kind of call in C, as far as that takes it: its data goes along, or follows in steps."""
        along = self.in_python(call)
        if not getattr(along, "whole", True):
            return along  # whose long data Python moves
        may_follow = along is None or (call.op in EACH_ITS_OWN and call.op in self.OWN)
        program = noted(call, self, self.local, self.calls, self._wires) if may_follow else None
        nothing = along is None and program is None and call.describe is None
        return None if nothing else InC(self.comm, call.fingerprint, along is not None, program)

    def in_python(self, call: Call) -> Prepared | None:
        """Return what does a kind of call that C does not take."""
        return super().prepare(call)

    def means(self, deadline: Deadline) -> Means:
        """Return what moves large data, until a deadline."""
        return Compiled(self.local, deadline, self._wires)

    def forget(self) -> None:
        """Forget the kinds of calls."""
        self.calls.forget()

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return the fast path of a group's plain calls, in C, and of messages where its ranks are few."""
        found = served(self.calls, self._hooks, group, self.comm)
        if self.size <= FEW_RANKS and isinstance(group.trail, Trail):
            wire = self._wire()
            wire.serve(group.trail)
            found.update(messages(wire))
        return Shortcuts(**found)

    def _wire(self) -> Wire:
        """Return the wire among all ranks."""
        comm = self.comm
        return make_wire(comm, Opening(comm.engine, self.rank, self.size), range(self.size), self._hooks)


class CompiledBetweenHosts(_Compiled, BetweenHosts):
    """The strategy of a few ranks that share no memory, where the compiled parts are installed."""

    carrier: Wire

    def __init__(self, comm: GlooCommunicator) -> None:
        super().__init__(comm)
        self._hooks = CallHooks(comm, InC)
        self._begin(make_wire(comm, self._opening, range(comm.size), self._hooks))

    def _wire(self) -> Wire:
        return self.carrier


def is_possible(hosts: list[list[int]], local: GlooCommunicator) -> bool:
    """Tell whether a group on these hosts can be compiled: its rows are small messages, and this host has a board."""
    sizes = list(map(len, hosts))
    row = RECORD_NBYTES * max(sizes) + along_nbytes(sizes)
    answer = RECORD_NBYTES * sum(sizes) + along_nbytes(sizes)
    if len(hosts) > FEW_RANKS or row > inline_nbytes(len(hosts)):
        return False
    return local.size == 1 or (isinstance(local.board, NativeBoard) and answer <= local.board.area_nbytes)


class CompiledSeveralHosts(_Compiled, SeveralHosts):
    """The strategy of a group on a few hosts, where the compiled parts are installed."""

    def __init__(self, comm: GlooCommunicator, hosts: list[list[int]], local: GlooCommunicator) -> None:
        super().__init__(comm, hosts, local)
        self._hooks = CallHooks(comm, InC, local)
        self._begin(self._carrier())

    def _compare(self, record: bytes, deadline: Deadline) -> bytes:
        waited_ns = self.carrier.waited_ns
        records = self.calls.compare(record, deadline)
        if records is None:
            return super()._compare(record, deadline)
        if self.carrier.waited_ns != waited_ns:
            self.comm.on_wait(self.carrier.waited_ns - waited_ns)
        return records

    def _carrier(self) -> Relay:
        relay, local, wire = self._relay, self.local, None
        if relay.opening is not None:
            firsts = [host[0] for host in relay.hosts]
            wire = make_wire(self.comm, relay.opening, firsts, self._hooks)
        gather, spread = (
            _NO_STEP if step is None else step.about(local.rank) for step in (relay.gathering, relay.spreading)
        )
        here = local.board, local.order.turn, local.numbers, gather, spread
        return Relay(here, wire, relay.hosts, relay.rank, relay.along_nbytes)
