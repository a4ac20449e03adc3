"""The fast path of plain calls, for every communicator that keeps something for each kind of call.

They take only what the slow path has prepared, and so has checked, once before: `Communicator.kinds` says what.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.recording import Ticket, Trail
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.work import Work
from rankwise.collective.fingerprint import OrdersDifferError

if TYPE_CHECKING:
    from rankwise.backends.cells import Cell
    from rankwise.collective.call import Prepared
    from rankwise.collective.issue_order import IssuedWork, IssueOrder


class Keeper(Protocol):
    """The communicator that has kept kinds of calls, as far as its fast calls must know it."""

    rank: int
    kinds: dict[Hashable, Prepared]
    order: IssueOrder
    numbers: Iterator[int]

    def broken_off(self, op: str, sequence: int, error: BaseException) -> None:
        """End the group after a collective that has failed half-way."""

    def run_in_turn(self, op: str, prepared: Prepared, given: Any, deadline: Deadline) -> None:
        """Carry a collective out, whose turn it is."""

    def line_up(self, op: str, prepared: Prepared, given: Any, deadline: Deadline) -> IssuedWork:
        """Have a collective carried out when its turn comes."""


#: Ends a call that has failed as the public function does, with the error that the call is about to raise.
Ends: TypeAlias = "Callable[[BaseException], object]"
#: Of a call that may be known its kind, what is handed over to what does it, and this rank's own contribution.
_Kind: TypeAlias = "tuple[tuple[Any, ...], Any, Any]"
#: See `bind` of `Shortcuts`.
Binder: TypeAlias = "Callable[[str, tuple[Any, ...], Timeout | None, Callable[[], Any], Ends], Callable[[], Any]]"
#: How many frames there are to the program's: that of `begin`, and that of what calls it.
_BELOW_A_BOUND_CALL = 2
#: The calls that are carried out here, of an array and a reduce op or a root, or of nothing.
_PLAIN = ("all_reduce", "broadcast", "barrier")
#: What carries out a call that the slow path has prepared: a communicator, what it keeps of that kind of call, and what
#: that takes of this one; and this rank's own contribution, or a kind of device.
Known: TypeAlias = "tuple[Keeper, Prepared, Any, Any]"


def fast_calls(comm: Keeper, group: Caller) -> Shortcuts:
    """Return the fast calls of one group on its communicator."""
    collected, kinds, order, sequence = group.collected, comm.kinds, comm.order, comm.numbers
    begin, end = group.trail.begin, group.trail.end
    turn, take = order.turn, order.turn.take
    rank, kind_of = comm.rank, _kind_of

    def carry_out(name: str, array: Any, option: Any, timeout: Timeout | None) -> bool:
        kind = None if collected else kind_of(rank, name, array, option)
        if kind is None:
            return False
        key, given, noted = kind
        found = kinds.get(key)
        if found is None:
            return False
        timeout_s = group.timeout_s if timeout is None else seconds(timeout)
        me = object()
        try:
            if not take(me):
                return False
            begin(name, noted)  # here, as it counts the frames up to the program's
            number, deadline = next(sequence), Deadline(timeout_s)
            try:
                found.run(given, number, deadline)
            except OrdersDifferError:
                comm.run_in_turn(name, found, given, deadline)
            except BaseException as error:
                comm.broken_off(name, number, error)
                raise
        finally:
            if turn.holder is me:  # no call, see `Turn`; an interrupt may have come on the way out of taking it
                turn.holder = None
                if turn.watchers:
                    order.tell()
        end()
        return True

    def known(name: str, args: Sequence[Any]) -> Known | None:
        kind = None if turn.closed or name not in _PLAIN else kind_of(rank, name, *args)
        if kind is None:
            return None
        key, given, array = kind
        found = kinds.get(key)
        return None if found is None else (comm, found, given, array)

    return Shortcuts(
        all_reduce=partial(carry_out, "all_reduce"),
        broadcast=partial(carry_out, "broadcast"),
        barrier=partial(carry_out, "barrier", None, None),
        bind=_binder(comm, group),
        known=known,
    )


def _kind_of(rank: int, name: str, array: Any = None, option: Any = None) -> _Kind | None:
    """Return what is kept of the kind of one of the `_PLAIN` calls; None if its arguments are not plain."""
    if name == "barrier":
        return ("barrier",), None, "cpu"
    if type(array) is not np.ndarray or not array.flags.carray:
        return None
    if name == "broadcast":
        given = ([array], []) if option == rank else ([], [array])
        return (name, option, array.dtype, array.shape), given, array
    if type(option) is not ReduceOp or option.factor is not None:
        return None
    return (name, option.name, array.dtype, array.shape), (array, option), array


def _binder(comm: Keeper, group: Caller) -> Binder:
    """Return what binds calls of a group: see `bind` of `Shortcuts`."""
    collected, kinds, order, turn = group.collected, comm.kinds, comm.order, comm.order.turn
    begin, end, sequence, take = group.trail.begin, group.trail.end, comm.numbers, comm.order.turn.take

    def bind(name: str, args: Any, timeout: Timeout | None, plain: Callable[[], Any], ends: Ends) -> Callable[[], Any]:
        kind = _kind_of(comm.rank, name, *args) if timeout is None and name in _PLAIN else None
        if kind is None:
            return plain
        (key, given, array), no_array, deadline = kind, name == "barrier", Deadline(group.timeout_s)
        dtype, shape = (None, None) if no_array else key[2:]
        known: Prepared | None = None
        run: Callable[[int, Deadline], None]

        def bound() -> Any:  # the same as `carry_out`, which would be one call more
            nonlocal known, run
            me = object()
            try:
                is_as_it_was = no_array or (array.dtype is dtype and array.shape == shape and array.flags.carray)
                found = kinds.get(key) if is_as_it_was and not collected else None
                if found is not known and found is not None:
                    known, run = found, _run_of(found, given)
                if found is not None and take(me):
                    begin(name, array, _BELOW_A_BOUND_CALL)
                    number, deadline.timeout_s = next(sequence), group.timeout_s
                    deadline.at_s = monotonic() + deadline.timeout_s
                    try:
                        run(number, deadline)
                    except OrdersDifferError:
                        comm.run_in_turn(name, found, given, deadline)
                    except BaseException as error:
                        comm.broken_off(name, number, error)
                        raise
                    turn.holder = None
                    if turn.watchers:
                        order.tell()
                    end()
                    return None
            except BaseException as error:
                if turn.holder is me:
                    turn.holder = None
                    if turn.watchers:
                        order.tell()
                ends(error)
                raise
            return plain()

        return bound

    return bind


# Shortcuts: what a communicator may offer beside its methods, so that plain calls skip all that lies between
#
# Most calls of most programs are alike: synchronous, on a plain array of a common dtype, in a healthy group. For these
# a communicator may offer a callable for each operation. The public call hands it the program's own arguments,
# unchecked, before it does anything else; the callable then does all that the public call does, or says that it did
# nothing, and the call takes the slow path. The first call of a group does, and has them made: many groups have none.
#
# A shortcut returns false, and has changed nothing, whenever anything is out of the ordinary: an argument that is not
# exactly what it expects, or that the capability table refuses; a group that has failed; a thread that has an open
# `coalescing` block; another operation that has its turn. Else it notes the call in the trail, by calling `begin`
# itself and not through a helper (the trail counts frames to the program's call), does it within its time-out, or the
# group's, notes its end, and returns true. Errors are those of the slow path.


class Caller(Protocol):
    """The group whose calls are made, as far as a shortcut must know it."""

    #: What notes the calls.
    trail: Trail
    #: The group's time-out, which may change between calls.
    timeout_s: float
    #: What the capability table says of those collectives that depend on no condition, by name and kind of device.
    certain: Mapping[tuple[str, str], Cell]
    #: The fast path of its plain calls; a backend may put faster ones in their place.
    shortcuts: Shortcuts

    @property
    def collected(self) -> Sized:
        """Tell by its size whether any thread has an open `coalescing` block, which collects works."""

    def lane(self, array: Any, op: str, reduce_op: ReduceOp | None = None, /) -> Any:
        """Return the communicator for a call; raise what the public call raises if the capability table refuses it."""

    def any_lane(self, op: str, /) -> tuple[Any, str]:
        """Return the same for a call without an array, and its device."""


def _nothing(*args: Any) -> bool:
    """Do nothing, and say so."""
    return False


def _run_of(found: Prepared, given: Any) -> Callable[[int, Deadline], None]:
    """Return what runs a call on the same arrays again and again, in a way of the backend's own if it has one."""
    bound = getattr(found, "bound", None)
    return partial(found.run, given) if bound is None else bound(given)


def _plain(
    name: str, args: tuple[Any, ...], timeout: Timeout | None, plain: Callable[[], Any], ends: Ends, /
) -> Callable[[], Any]:
    """Bind nothing."""
    return plain


def _unknown(name: str, args: tuple[Any, ...], /) -> Known | None:
    """Know no call."""
    return None


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """One callable for each operation, called by the public function of that name with its array arguments.

    All collectives take as the last the time-out of the call, as the program has given it, or None.

    Attributes:
        all_reduce: Takes array and reduce op.
        broadcast: Takes array and the root's group rank.
        reduce: Takes array, reduce op and the root's group rank.
        all_gather: Takes the list of output arrays and the input array.
        gather, scatter: Take array, the root's list of arrays, elsewhere None, and the root's group rank.
        reduce_scatter: Takes the output array, the list of input arrays and the reduce op.
        reduce_scatter_single: Takes output array, input array and reduce op.
        all_to_all: Takes the lists of output and input arrays.
        all_gather_single, all_to_all_single: Take output and input array, in equal parts.
        barrier: Takes nothing.
        described: Takes the name of a collective that is described in steps, array, reduce op or None, the root's group
            rank or -1, and the lists of input and of output arrays, each of which may be None.
        send: Takes array, global rank and tag.
        recv: Takes array, global rank and tag; returns the sender's global rank, or None for nothing.
        all_reduce_coalesced: Takes a list of arrays and the reduce op.
        isend, irecv: Take array, global rank and tag, the group, and what makes Python's work; return a work of
            compiled code, or what the public function makes one of, or None for nothing. That is what stands for the
            message in the recorder, and of an `isend` a work to wait for, or None if it has left; of an `irecv` the
            sender's global rank and the length in bytes of a message that was there already.
        bind: Takes the name of one of these collectives, its arguments but for the time-out, and that; a call without
            arguments that makes the public call with these; and what ends a call that has failed. Returns what makes
            the call again and again, which may be that call without arguments.
        known: Takes the name of one of these collectives and its arguments but for the time-out, and returns what
            carries it out, for a call that is asynchronous; None where the general path must be taken.
    """

    all_reduce: Callable[[Any, Any, Timeout | None], bool] = _nothing
    broadcast: Callable[[Any, int, Timeout | None], bool] = _nothing
    reduce: Callable[[Any, Any, int, Timeout | None], bool] = _nothing
    all_gather: Callable[[Any, Any, Timeout | None], bool] = _nothing
    gather: Callable[[Any, Any, int, Timeout | None], bool] = _nothing
    scatter: Callable[[Any, Any, int, Timeout | None], bool] = _nothing
    all_gather_single: Callable[[Any, Any, Timeout | None], bool] = _nothing
    reduce_scatter: Callable[[Any, Any, Any, Timeout | None], bool] = _nothing
    reduce_scatter_single: Callable[[Any, Any, Any, Timeout | None], bool] = _nothing
    all_to_all: Callable[[Any, Any, Timeout | None], bool] = _nothing
    all_to_all_single: Callable[[Any, Any, Timeout | None], bool] = _nothing
    barrier: Callable[[Timeout | None], bool] = _nothing
    described: Callable[[str, Any, Any, int, Any, Any, Timeout | None], bool] = _nothing
    all_reduce_coalesced: Callable[[Any, Any, Timeout | None], bool] = _nothing
    send: Callable[[Any, Any, Any], bool] = _nothing
    recv: Callable[[Any, Any, Any], int | None] = lambda *args: None
    isend: Callable[[Any, Any, Any, Any, Any], Work | tuple[Ticket, Work | None] | None] = lambda *args: None
    irecv: Callable[[Any, Any, Any, Any, Any], Work | tuple[Ticket, int, int] | None] = lambda *args: None
    bind: Binder = _plain
    known: Callable[[str, tuple[Any, ...]], Known | None] = _unknown
