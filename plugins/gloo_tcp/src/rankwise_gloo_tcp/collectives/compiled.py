"""The fast path of a group whose ranks share a board, compiled; and what it leaves to Python."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from rankwise import backends
from rankwise.backends import (
    REDUCE_OPS,
    Array,
    Call,
    Caller,
    Context,
    Deadline,
    Ends,
    Fingerprint,
    OrdersDifferError,
    Prepared,
    ReduceOp,
    Shortcuts,
    Timeout,
    mismatch,
    seconds,
    unasked_works,
)
from rankwise.errors import DistError, ProtocolError
from rankwise_gloo_tcp.board import agreement
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import MessageCall
from rankwise_gloo_tcp.board.compiled import WAYS
from rankwise_gloo_tcp.board.native_board import NativeBoard
from rankwise_gloo_tcp.board.prepared import Kind
from rankwise_gloo_tcp.collectives.copying import cut
from rankwise_gloo_tcp.collectives.kinds import call_like
from rankwise_gloo_tcp.collectives.one_host import AtBoard, OneHost
from rankwise_gloo_tcp.collectives.strategy import ARGUMENTS
from rankwise_gloo_tcp.engine.fast_path import MessageHooks
from rankwise_gloo_tcp.engine.request import Request
from rankwise_native import Calls, Messages, Program, Trail

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator
    from rankwise_gloo_tcp.engine.peer import Peer
    from rankwise_gloo_tcp.protocol.flow import Window
    from rankwise_gloo_tcp.transport.channel import Channel
    from rankwise_gloo_tcp.transport.rings import Rings

#: Those that C does not know by their names are left to Python.
COMPILED_OPS = {name: op for name in REDUCE_OPS if isinstance(op := getattr(ReduceOp, name, None), ReduceOp)}
#: The calls whose public functions are compiled too.
_PUBLIC = (
    *ARGUMENTS,
    "described",
    "all_gather_single",
    "reduce_scatter_single",
    "all_to_all_single",
    "all_reduce_coalesced",
)
#: Held while what a group's calls share is made.
_making = threading.Lock()


class CompiledHost(OneHost):
    """The strategy of a group whose ranks share a compiled board.

    Args:
        comm: The group.
        board: The board.
        note: Returns the steps of a call that is described, for these calls in C; None if that does not take them.
    """

    __slots__ = ("_made", "_note")

    def __init__(
        self,
        comm: GlooCommunicator,
        board: Board,
        note: Callable[[Call, CompiledHost, Calls, CallHooks], Program | None],
    ) -> None:
        super().__init__(comm, board)
        self._note = note
        self._made: tuple[Calls, CallHooks] | None = None

    @property
    def calls(self) -> Calls:
        """The calls in C; many groups have none."""
        return self._first_call()[0]

    @property
    def carrier(self) -> Board:
        """What knows how long this rank has waited."""
        return self.board

    def _first_call(self) -> tuple[Calls, CallHooks]:
        if self._made is None:
            with _making:  # one thread may carry a call out while another prepares the next
                if self._made is None:
                    assert isinstance(self.board, NativeBoard)  # the compiled parts make both
                    hooks = CallHooks(self.comm, CompiledAtBoard, self.comm)
                    self._made = Calls(self.board, self.comm.order.turn, COMPILED_OPS, hooks), hooks
        return self._made

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does calls of this kind at the board; of one that is described, what takes its steps."""
        return super().prepare(call) if call.describe is None else self._noted(call)

    def _noted(self, call: Call) -> Prepared | None:
        if self.own(call) is None:
            return None  # it goes by messages
        return _InSteps(self, call, self._note(call, self, *self._first_call()))

    def at_board(self, kind: Kind) -> Prepared:
        """Return what does a kind of call, in C as far as that takes it."""
        return CompiledAtBoard(self.comm, kind.prepared.fingerprint)

    def in_python(self, call: Call) -> AtBoard:
        """Return what does a kind of call that C does not take."""
        kind = self._kinds.prepare(call)
        assert kind is not None  # else there would be none in C either
        return AtBoard(self, *kind)

    def forget(self) -> None:
        """Forget the kinds of calls."""
        if self._made is not None:
            self._made[0].forget()

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return the fast path of a group's plain calls and messages, in C."""
        found = served(*self._first_call(), group, self.comm)
        is_default = self.comm.context.parent is None  # which most programs use; many others make no call
        if isinstance(group.trail, Trail) and self.comm.engine.peers.pipes:
            found.update(messages(_compiled(self.comm, group) if is_default else _FirstMessage(self.comm, group)))
        if is_default:
            self.comm.prepare(Call("barrier"))  # of which there is one kind,
            found.get("known", _nothing)("barrier", ())  # which C then knows
            assert isinstance(self.board, NativeBoard)
            self.board.touch()
        return Shortcuts(**found)


def _nothing(*args: Any) -> None:
    """Know no call, as where nothing is served, and move nothing."""


def served(calls: Calls, hooks: CallHooks, group: Caller, comm: GlooCommunicator) -> dict[str, Any]:
    """Have these calls serve a group, and return its public calls by name; nothing where it notes in Python."""
    if not isinstance(group.trail, Trail):
        return {}
    hooks.group = group
    certain = {op: cell.certainly for (op, device), cell in group.certain.items() if device == "cpu"}
    calls.serve(group.trail, group.collected, comm.numbers, comm, certain)
    return {name: getattr(calls, name) for name in (*_PUBLIC, "known")} | {"bind": partial(_bind, calls)}


def _bind(
    calls: Calls, name: str, args: tuple[Any, ...], timeout: Timeout | None, plain: Callable[[], Any], ends: Ends
) -> Callable[[], Any]:
    """Bind a public call in C: see `Shortcuts`."""
    return calls.bind(name, args, timeout, plain, partial(_raise_ended, ends))


def _raise_ended(ends: Ends, error: BaseException) -> NoReturn:
    """End a call that has failed in compiled code, and raise its error as a public function does."""
    try:
        raise error
    except BaseException as again:
        ends(again)
        raise


def messages(by: Any) -> dict[str, Any]:
    """Return the public calls of messages by name, of what carries them out."""
    return {name: getattr(by, name) for name in ("send", "recv", "isend", "irecv")}


def arguments(call: Call) -> tuple[str, tuple[Any, ...]]:
    """Return what C is given of a call: its name and its arguments."""
    if call.together:
        return "together", (call.array, call.reduce_op, *call.together)
    if call.op not in ARGUMENTS:
        return "described", (call.op, call.array, call.reduce_op, call.root, call.ins, call.outs)
    order = () if call.reordered is None else (call.reordered.mark,)
    return call.op, (*map(partial(getattr, call), ARGUMENTS[call.op]), *order)


def call_of(given: tuple[str, tuple[Any, ...]], comm: GlooCommunicator) -> Call:
    """Return the call that C was given, perhaps with an array in equal parts instead of a list."""
    name, args = given
    if name == "together":
        return Call("all_reduce", args[0], args[1], together=args[2:])
    if name == "described":
        return Call(*args)
    op = name.removesuffix("_single")
    fields: dict[str, Any] = dict(zip(ARGUMENTS[op], args, strict=False))
    if len(args) > len(fields):  # the mark of its memory order
        fields["reordered"] = backends.Reordered(args[0], args[0], args[-1])
    if op != name:
        fields = {
            field: cut(value.reshape(-1), comm.size) if field in ("ins", "outs") else value
            for field, value in fields.items()
        }
    if op == "all_to_all":
        fields["array"] = fields["ins"][comm.rank]
    return Call(op, **fields)


class CompiledKind:
    """One kind of call that C may know; if it does not take one, that is done in Python.

    Args:
        comm: The group.
        fingerprint: What all ranks compare, in words.

    Attributes:
        about: What all ranks compare: at a board the digest alone, else the whole record.
        is_prepared: Whether something is prepared for it in Python too.
    """

    about: Any
    is_prepared = False
    #: Its steps, where these are noted.
    program: Program | None = None

    def __init__(self, comm: GlooCommunicator, fingerprint: Fingerprint) -> None:
        self.comm, self.fingerprint = comm, fingerprint
        self._in_python: Prepared | None = None

    def bind(self, call: Call) -> Any:
        """Return what C is given of the call."""
        return arguments(call)

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare a call with those of the others, and carry it out."""
        comm, (name, args), strategy = self.comm, given, self._strategy
        carrier = strategy.carrier
        waited_ns = carrier.waited_ns
        if not strategy.calls.run(name, args, sequence, deadline):
            self.run_in_python(call_of(given, comm), sequence, deadline)
        elif carrier.waited_ns != waited_ns:
            comm.on_wait(carrier.waited_ns - waited_ns)

    def run_in_python(self, call: Call, sequence: int, deadline: Deadline) -> None:
        """Do the same where C does not take the call: as prepared, or its steps one by one after the comparison."""
        if self._in_python is None and self.is_prepared:
            self._in_python = self._strategy.in_python(call)
        if self._in_python is None:
            self.comm.compare_and_run(call, self.comm.algorithm(call), sequence, deadline)
        else:
            self._in_python.run(self._in_python.bind(call), sequence, deadline)

    @property
    def _strategy(self) -> Any:
        """That of the group, which is open, as a call has its turn: one with `calls`, `carrier` and `in_python`."""
        return self.comm.strategy


class CompiledAtBoard(CompiledKind):
    """One kind of call at the board."""

    is_prepared = True

    def __init__(self, comm: GlooCommunicator, fingerprint: Fingerprint) -> None:
        super().__init__(comm, fingerprint)
        self.about = fingerprint.digest()


class _InSteps(CompiledKind):
    """One kind of call whose steps C has noted, if it takes them; before, the calls are compared at the board."""

    def __init__(self, strategy: CompiledHost, call: Call, program: Program | None) -> None:
        super().__init__(strategy.comm, call.fingerprint)
        self.about = MessageCall(self.fingerprint, _nothing).about(strategy.rank)  # the steps move it
        self.way, self.program = 0 if program is None else WAYS["PROGRAM"], program


class CallHooks:
    """What compiled calls of one group ask for about kinds of calls, and where they cannot go on by themselves.

    Args:
        comm: The group.
        chosen: Makes the kind of a call that C has chosen the way of.
        local: The group at whose board calls wait, if they do.
    """

    __slots__ = ("_chosen", "_comm", "_local", "digest", "group", "tell")

    def __init__(
        self,
        comm: GlooCommunicator,
        chosen: Callable[[GlooCommunicator, Fingerprint], CompiledKind],
        local: GlooCommunicator | None = None,
    ) -> None:
        self._comm, self._chosen, self._local = comm, chosen, local
        self.tell, self.digest = comm.order.tell, Fingerprint.digest_of
        #: What says how long a call takes that has no time-out of its own: the group, once it has public calls.
        self.group: Caller | Context = comm.context

    def deadline(self, given: Deadline | Timeout | None) -> Deadline:
        """Return the deadline of a call: it, or what its time-out makes of it; None is the group's."""
        if isinstance(given, Deadline):
            return given
        return Deadline(self.group.timeout_s if given is None else seconds(given))

    def wait(self, given: Deadline | Timeout | None) -> Deadline:
        """Wait at the board for the ranks that are late, and return the call's deadline.

        Between hosts nobody is waited for here: `WireHooks.finish` does that.

        Args:
            given: It, or the time-out of a call that has not waited yet; None is the group's.
        """
        deadline, local = self.deadline(given), self._local
        if local is None:
            return deadline
        assert isinstance(local.board, NativeBoard)  # else no call would wait at it
        try:
            local.board.await_all(deadline)
        except TimeoutError:
            error = agreement.late(local.board, local.context.global_ranks, deadline)
            if local is not self._comm:
                from rankwise_gloo_tcp.collectives.relay import whom_the_first_awaits  # as between hosts alone

                error = whom_the_first_awaits(local, error)
            raise error from None
        return deadline

    def learn(self, name: str, array: Array | None, option: Any, numbers: tuple[int, ...]) -> Any:
        """Return the kind of a call if the slow path has prepared it, and so has checked it; else None."""
        found: Any = self._comm.kinds.get(call_like(name, array, option, numbers, self._comm.rank).kind)
        return found if isinstance(found, CompiledKind) else None

    def along(self, name: str) -> int:
        """Return up to how many bytes go with the comparison of calls between hosts; -1 if these are left to Python."""
        return self._comm.strategy.along_nbytes(name)

    def allow(self, name: str, array: Array | None, option: Any, text: bytes) -> int | None:
        """Return the digest of a public call that C has worded, as far as the group's table allows that call.

        C has checked everything else, and asks only of what is not certain. If the table refuses the call, the public
        function finds that too, and raises it.
        """
        group = self.group
        if isinstance(group, Context):  # which has no public calls
            return None
        try:
            if array is None:
                lane, _ = group.any_lane(name)
            else:
                lane = group.lane(array, name, option if type(option) is ReduceOp else None)
        except (DistError, TypeError, ValueError):
            return None
        return Fingerprint.digest_of(text) if lane is self._comm else None

    def kind(self, name: str, array: Array | None, option: Any, numbers: tuple[int, ...]) -> CompiledKind:
        """Return the kind of a call that was allowed, which only errors and asynchronous calls ask for."""
        comm, call = self._comm, call_like(name, array, option, numbers, self._comm.rank)
        found: Any = comm.kinds.get(call.kind)
        if isinstance(found, CompiledKind):
            return found
        made = self._chosen(comm, call.fingerprint)
        comm.keep(call.kind, made)
        return made

    def garbled(self) -> DistError:
        """Return what is wrong with a rank that says it makes the same call."""
        return ProtocolError("a rank sent another number of bytes than its call has")

    def failed(
        self, kind: CompiledKind, number: int, error: BaseException | None, given: Deadline | Timeout | None
    ) -> None:
        """Raise why a call has failed, or was not the same on all ranks.

        Args:
            kind: What kind of call.
            number: Its number.
            error: Why it has failed; None if the calls differ.
            given: The call's deadline, or its time-out if it has not waited; None is the group's.
        """
        raise error or mismatch(self._comm, kind.fingerprint, number, self.deadline(given))

    def broken(
        self, kind: CompiledKind, number: int, error: BaseException | None, given: Deadline | Timeout | None
    ) -> Deadline:
        """Raise what all ranks raise after a public call that has failed; or return until when all make it again."""
        deadline = self.deadline(given)
        try:
            self.failed(kind, number, error, deadline)
        except OrdersDifferError:
            pass  # it is still this call's turn
        except BaseException as reason:
            self._comm.broken_off(kind.fingerprint.op, number, reason)
            raise
        return deadline


class MessagePeer(NamedTuple):
    """What compiled messages know of a rank: how errors call it, its process if that is read, and what leads there."""

    name: int
    pid: int
    rings: Rings | None
    pipe: Channel | None
    peer: Peer
    window: Window


class _FirstMessage:
    """Makes the compiled messages of a group when its first message comes: many groups have none.

    That message takes the slow path, the others by the shortcuts that take the place of these.
    """

    __slots__ = ("_comm", "_group")

    def __init__(self, comm: GlooCommunicator, group: Caller) -> None:
        self._comm, self._group = comm, group

    def send(self, array: Any, peer: Any, tag: Any) -> bool:
        """Leave a message to the slow path."""
        self._make()
        return False

    def recv(self, array: Any, peer: Any, tag: Any, *of_work: Any) -> None:
        """Leave a message to the slow path."""
        self._make()

    isend = irecv = recv

    def _make(self) -> None:
        # Else another thread was first, or the group has ended.
        if self._comm.failure is None and self._group.shortcuts.send == self.send:
            made = _compiled(self._comm, self._group)
            self._group.shortcuts = replace(self._group.shortcuts, **messages(made))


def _compiled(comm: GlooCommunicator, group: Caller) -> Messages:
    """Make the compiled messages of a group."""
    assert isinstance(group.trail, Trail)  # compiled too
    may_spin = comm.engine.progress_lock.spin_policy.spin_s > 0
    made = Messages(group.trail, _peers(comm), _Hooks(comm, group), may_spin)
    unasked_works.also(made)
    return made


class _Hooks(MessageHooks):
    """What compiled messages of one group ask for."""

    __slots__ = ("_group", "lane", "turn")

    def __init__(self, comm: GlooCommunicator, group: Caller) -> None:
        super().__init__(comm.engine)
        self.turn, self.lane, self._group = comm.order.turn, comm, group

    def finish(self, request: Request, verb: str, peer: int | None) -> None:
        """Wait until a message has been sent or received."""
        self.lane._finish(request, verb, peer, self._group.timeout_s)

    def receive(self, array: Array, source: int | None, tag: int) -> tuple[int, int]:
        """Receive a message for which this has looked in vain; return its sender and how many bytes it has."""
        request = self._engine.receive(array, source, tag, waited=True)
        self.finish(request, "recv from", source)
        return request.source_rank(), request.nbytes


def _peers(comm: GlooCommunicator) -> list[MessagePeer]:
    names, windows = comm.context.global_ranks, comm.engine.dispatcher.outbox.windows
    return [
        MessagePeer(
            names[peer.rank],
            peer.card.pid if peer.readable else 0,
            None if peer.connection is None else peer.connection.rings,
            peer.connection,
            peer,
            window,
        )
        for peer, window in zip(comm.engine.peers.all, windows, strict=True)
    ]
