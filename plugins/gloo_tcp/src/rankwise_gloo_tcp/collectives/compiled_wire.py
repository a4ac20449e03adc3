"""The fast path between hosts, compiled: over the sockets of the engine, by the caller's own thread."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rankwise.backends import Array, Call, Caller, Deadline, Prepared, Shortcuts, Timeout, as_bytes
from rankwise.errors import DistError, ProtocolError
from rankwise_gloo_tcp.board.compiled import WIRE_WAYS
from rankwise_gloo_tcp.collectives.between_hosts import BetweenHosts, reducing
from rankwise_gloo_tcp.collectives.compiled import ARGUMENTS, COMPILED_OPS, PUBLIC, CompiledKind, KindHooks, served
from rankwise_gloo_tcp.collectives.opening import Opening, inline_nbytes
from rankwise_gloo_tcp.collectives.plans import Along, OneShot
from rankwise_gloo_tcp.collectives.streams import wait_for
from rankwise_gloo_tcp.engine.fast_path import WireHooks
from rankwise_gloo_tcp.engine.peer import Peer
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.flow import Window
from rankwise_native import Calls, Relay, Trail, Wire

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["CompiledBetweenHosts", "InC", "WireCallHooks", "make_wire"]

_RECORD = struct.Struct("<QQQQ")
#: A reduction to a root is compiled here, where it is not at the board.
_ARGUMENTS: dict[str, Callable[[Call], tuple[Any, ...]]] = {
    **ARGUMENTS,
    "reduce": lambda call: (call.array, call.reduce_op, call.root),
}


class CompiledBetweenHosts(BetweenHosts):
    """The strategy of a few ranks that share no memory, where the compiled parts are installed."""

    def __init__(self, comm: GlooCommunicator) -> None:
        super().__init__(comm)
        self._hooks = WireCallHooks(comm)
        self.carrier = make_wire(comm, self._opening, range(comm.size), self._hooks)
        self.calls = Calls(self.carrier, comm._order.turn, COMPILED_OPS, self._hooks)

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does a kind of call whose data goes along, in C as far as that takes it."""
        small, way = super().prepare(call), self._way(call)
        return small if way is None else InC(self, call, WIRE_WAYS[way], small)

    def _way(self, call: Call) -> str | None:
        if call.op not in _ARGUMENTS:
            return None
        if call.op == "barrier":
            return "SWAP" if self.choose("barrier", 0) == "along" else None
        if call.op == "all_reduce" and self._is_streamed(call):
            return "SWAP_STREAM"
        if call.op == "broadcast" and self.choose("broadcast", call.array.nbytes) == "segments":
            return "SWAP_SEGMENTS"
        plan = self.OWN[call.op](self, call)
        if isinstance(plan, OneShot):
            return "SWAP_REDUCE" if call.op == "all_reduce" else "SWAP_COMBINE"
        if isinstance(plan, Along) and all(array.nbytes <= inline_nbytes(self.size) for array in _arrays(plan)):
            return "SWAP_MOVE"
        return None

    def _is_streamed(self, call: Call) -> bool:
        """Tell whether an all_reduce of two ranks goes in segments, which are reduced as they are."""
        array, op = call.array, reducing(call)
        return self.size == 2 and op.is_plain_on(array.dtype) and self.choose("all_reduce", array.nbytes) == "streamed"

    def forget(self) -> None:
        """Forget the kinds of calls."""
        self.calls.forget()

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return the fast path of a group's plain calls and messages, in C."""
        found = served(self.calls, self._hooks, group, self.comm, (*PUBLIC, "reduce"))
        if isinstance(group.trail, Trail):
            self.carrier.serve(group.trail)
            found.update(send=self.carrier.send, recv=self.carrier.recv)
        return Shortcuts(**found)


def _arrays(plan: Along) -> list[Array]:
    return [*plan.offered.values(), *plan.wanted.values()]


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

    def __init__(self, strategy: _CompiledStrategy, call: Call, way: int, small: Prepared | None) -> None:
        self._strategy, self.way, self._small, self.fetch_count = strategy, way, small, 0
        self.fingerprint = call.fingerprint
        self.about = (*_RECORD.unpack(self.fingerprint.record(strategy.rank, 0)[8:]), 0)
        self._op, self._arguments = call.op, _ARGUMENTS[call.op]

    def bind(self, call: Call) -> Any:
        """Return the call."""
        return call

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare a call with those of the others, and carry it out."""
        strategy = self._strategy
        waited_ns = strategy.carrier.waited_ns
        if strategy.calls.run(self._op, self._arguments(given), sequence, deadline):
            if strategy.carrier.waited_ns != waited_ns:
                strategy.comm.on_wait(strategy.carrier.waited_ns - waited_ns)
        elif self._small is not None:
            self._small.run(self._small.bind(given), sequence, deadline)
        else:
            strategy.comm.compare_and_run(given, strategy.algorithm(given), sequence, deadline)


class WireCallHooks(KindHooks):
    """What compiled calls over a wire ask for."""

    def wait(self, given: Deadline | Timeout | None) -> Deadline:
        """Wait for nobody: `WireHooks.finish` does."""
        return self.deadline(given)

    def garbage(self) -> DistError:
        """Return what is wrong with a rank that says it makes the same call."""
        return ProtocolError("a rank sent another number of bytes than its call has")


class _Link(NamedTuple):
    """What a wire knows of a rank: how errors and the engine call it, what leads there, and where what comes goes."""

    name: int
    rank: int
    peer: Peer
    window: Window
    room: memoryview


class _Hooks(WireHooks):
    """What the wire of one group asks for."""

    def __init__(self, comm: GlooCommunicator, opening: Opening, calls: KindHooks) -> None:
        super().__init__(comm.engine)
        self.turn, self._comm, self._opening, self._calls = comm._order.turn, comm, opening, calls

    def finish(
        self, given: Deadline | Timeout | None, record: bytes, state: list[tuple[int, Any, bool, Any]]
    ) -> list[int]:
        """Go on with an exchange, and return how many bytes have come from each rank that had not sent all before.

        Args:
            given: The call's deadline, or its time-out; None is the group's.
            record: What goes before the data.
            state: Of each other rank its number, what must still be sent, whether its message is here, and a request
                to wait for or None.
        """
        engine, deadline, opening = self._engine, self._calls.deadline(given), self._opening
        receives = {peer: opening.receive(peer) for peer, _, taken, _ in state if not taken}
        sends: list[Request] = [rest for _, _, _, rest in state if rest is not None]
        sends += [opening.send(peer, record, data) for peer, data, _, _ in state if data is not None]
        wait_for(engine, list(receives.values()), deadline)
        wait_for(engine, sends, deadline)
        return [receives[peer].nbytes if peer in receives else 0 for peer, _, _, _ in state]

    def stream(
        self,
        given: Deadline | Timeout | None,
        source: Array,
        array: Array,
        peer: int,
        tag: int,
        out: tuple[int, int] | None,
        into: tuple[int, int] | None,
        aside: bool,
        rest: Request | None,
    ) -> Deadline:
        """Go on with one segment of a long collective, and return when all of it must be done.

        Args:
            given: The call's deadline, or its time-out; None is the group's.
            source: What is sent.
            array: Where what comes goes, or is reduced into.
            peer: The other rank, as the engine calls it.
            tag: The tag of the segments.
            out: Which bytes of the source must still be sent, from the first to the last.
            into: Which bytes of the array have yet to come.
            aside: Whether they go into memory of their own, to be reduced, and not into the array.
            rest: A request to wait for as well, if part of a segment has been sent.
        """
        engine, deadline = self._engine, self._calls.deadline(given)
        receives, sends = [], [] if rest is None else [rest]
        if into is not None:
            room = self._opening.room_of(peer)[: into[1] - into[0]] if aside else as_bytes(array)[slice(*into)]
            receives.append(engine.receive_bytes(room, peer, tag, True))
        if out is not None:
            sends.append(engine.send_bytes(as_bytes(source)[slice(*out)], peer, tag, True))
        wait_for(engine, receives, deadline)
        wait_for(engine, sends, deadline)
        return deadline

    def finish_message(self, request: Request, peer: int) -> None:
        """Wait until a message has been sent."""
        self._comm._finish(request, "send to", peer, self._calls.group.timeout_s)

    def receive(self, array: Array, source: int, tag: int) -> None:
        """Receive a message for which this has looked in vain."""
        request = self._engine.receive(array, source, tag, waited=True)
        self._comm._finish(request, "recv from", source, self._calls.group.timeout_s)


def make_wire(comm: GlooCommunicator, opening: Opening, ranks: Sequence[int], calls: KindHooks) -> Wire:
    """Return the compiled wire among few ranks of a group, in the order of their opening."""
    engine, names = comm.engine, comm.context.global_ranks
    windows, rooms = engine.dispatcher.outbox.windows, opening.rooms()
    links = [
        None if rank == comm.rank else _Link(names[rank], rank, engine.peers[rank], windows[rank], rooms[place])
        for place, rank in enumerate(ranks)
    ]
    spin_ns = int(engine.progress_lock.spin_policy.spin_s * 1e9)
    return Wire(ranks.index(comm.rank), links, _Hooks(comm, opening, calls), spin_ns)
