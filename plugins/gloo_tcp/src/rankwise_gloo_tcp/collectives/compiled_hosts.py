"""The fast path between hosts, compiled: over the sockets of the engine, by the caller's own thread, and at the board
of each host that has several ranks."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from rankwise.backends import Call, Caller, Deadline, Fingerprint, Prepared, Shortcuts, Timeout
from rankwise_gloo_tcp.board import agreement
from rankwise_gloo_tcp.board.compiled import WAYS
from rankwise_gloo_tcp.board.native_board import NativeBoard
from rankwise_gloo_tcp.collectives.between_hosts import BetweenHosts
from rankwise_gloo_tcp.collectives.compiled import COMPILED_OPS, CompiledKind, messages, served
from rankwise_gloo_tcp.collectives.compiled_means import Compiled, Wires, noted
from rankwise_gloo_tcp.collectives.hierarchy import Means
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, RECORD_NBYTES, Opening, inline_nbytes
from rankwise_gloo_tcp.collectives.relay import EACH_ITS_OWN, told, whom_the_first_awaits
from rankwise_gloo_tcp.collectives.several_hosts import SeveralHosts
from rankwise_gloo_tcp.collectives.tables import along_nbytes
from rankwise_gloo_tcp.collectives.wiring import WireCallHooks, make_wire
from rankwise_native import Calls, Program, Relay, Trail

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


class CompiledBetweenHosts(BetweenHosts):
    """The strategy of a few ranks that share no memory, where the compiled parts are installed."""

    def __init__(self, comm: GlooCommunicator) -> None:
        super().__init__(comm)
        self._hooks = WireCallHooks(comm, InC)
        self.carrier = make_wire(comm, self._opening, range(comm.size), self._hooks)
        self.calls = Calls(self.carrier, comm.order.turn, COMPILED_OPS, self._hooks)
        self._wires = Wires(comm, self._hooks)

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does a kind of call in C, as far as that takes it: its data goes along, or follows in steps."""
        along = self.along(call)
        if along is not None:
            return InC(self.comm, along.fingerprint) if along.whole else along
        program = noted(call, self, None, self.calls, self._wires)
        nothing = program is None and call.describe is None
        return None if nothing else InC(self.comm, call.fingerprint, False, program)

    def in_python(self, call: Call) -> Prepared | None:
        """Return what does a kind of call that C does not take."""
        return self.along(call)

    def means(self, deadline: Deadline) -> Means:
        """Return what moves large data, until a deadline."""
        return Compiled(None, deadline, self._wires)

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


def is_possible(hosts: list[list[int]], local: GlooCommunicator) -> bool:
    """Tell whether a group on these hosts can be compiled: its rows are small messages, and this host has a board."""
    sizes = list(map(len, hosts))
    row = RECORD_NBYTES * max(sizes) + along_nbytes(sizes)
    answer = RECORD_NBYTES * sum(sizes) + along_nbytes(sizes)
    if len(hosts) > FEW_RANKS or row > inline_nbytes(len(hosts)):
        return False
    return local.size == 1 or (isinstance(local.board, NativeBoard) and answer <= local.board.area_nbytes)


class CompiledSeveralHosts(SeveralHosts):
    """The strategy of a group on a few hosts, where the compiled parts are installed."""

    def __init__(self, comm: GlooCommunicator, hosts: list[list[int]], local: GlooCommunicator) -> None:
        super().__init__(comm, hosts, local)
        self._hooks = _Hooks(comm, local)
        self.carrier = self._carrier()
        self.calls = Calls(self.carrier, comm.order.turn, COMPILED_OPS, self._hooks)
        self._wires = Wires(comm, self._hooks)

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does a kind of call in C, as far as that takes it: its data goes along, or follows in steps."""
        relayed = super().prepare(call)
        may_follow = relayed is None or call.op in EACH_ITS_OWN
        program = noted(call, self, self.local, self.calls, self._wires) if may_follow else None
        nothing = relayed is None and program is None and call.describe is None
        return None if nothing else InC(self.comm, call.fingerprint, relayed is not None, program)

    def in_python(self, call: Call) -> Prepared | None:
        """Return what does a kind of call that C does not take."""
        return super().prepare(call)

    def forget(self) -> None:
        """Forget the kinds of calls."""
        self.calls.forget()

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return the fast path of a group's plain calls, in C, and of messages where its ranks are few."""
        found = served(self.calls, self._hooks, group, self.comm)
        if self.size <= FEW_RANKS and isinstance(group.trail, Trail):
            wire = make_wire(self.comm, Opening(self.comm.engine, self.rank, self.size), range(self.size), self._hooks)
            wire.serve(group.trail)
            found.update(messages(wire))
        return Shortcuts(**found)

    def _compare(self, record: bytes, deadline: Deadline) -> bytes:
        waited_ns = self.carrier.waited_ns
        records = self.calls.compare(record, deadline)
        if records is None:
            return super()._compare(record, deadline)
        if self.carrier.waited_ns != waited_ns:
            self.comm.on_wait(self.carrier.waited_ns - waited_ns)
        return records

    def means(self, deadline: Deadline) -> Means:
        """Return what moves large data, until a deadline."""
        return Compiled(self.local, deadline, self._wires)

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


class _Hooks(WireCallHooks):
    """What compiled calls of several hosts ask for."""

    def __init__(self, comm: GlooCommunicator, local: GlooCommunicator) -> None:
        super().__init__(comm, InC)
        self._local = local

    def wait(self, given: Deadline | Timeout | None) -> Deadline:
        """Wait for those of this host who are late, and return the deadline."""
        deadline, board = self.deadline(given), self._local.board
        assert isinstance(board, NativeBoard)  # else nobody is waited for here
        try:
            board.await_all(deadline)
        except TimeoutError:
            error = agreement.late(board, self._local.context.global_ranks, deadline)
            raise whom_the_first_awaits(self._local, error) from None
        return deadline
