"""The flight recorder's hot half: what each public call notes on its way, a few hundred nanoseconds in all.

Keeping what was noted, writing it to files and judging it are the business of `rankwise_watch`. The protocols say what
a recorder is. A world begins with the compiled one of `rankwise-native`, or else with one that keeps nothing, in whose
place an observer puts its own: `rankwise_watch.noting` has the one in Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import count
from operator import add
from types import CodeType
from typing import Any, NamedTuple, Protocol

from rankwise.basics import native
from rankwise.basics.tracebacks import skipped


class Entry(NamedTuple):
    """One operation, as far as it had come when somebody asked."""

    #: Its group's.
    trail: Trail
    op: str
    #: Collectives and messages of a group count apart, each from 0.
    number: int
    #: What a message says of its peer and tag; None for a collective. The peer is None for a receive from anyone.
    detail: tuple[int | None, int] | None
    #: This rank's own contribution; its dtype is None if there is no array.
    nbytes: int
    dtype: Any
    #: The code object of the program's call and the instruction in it, which only a reader turns into file and line.
    code: CodeType | None
    lasti: int
    #: The thread that is in the call; 0 once an asynchronous call has returned.
    thread: int
    began_ns: int
    #: 0 until the end has been seen; an asynchronous operation is seen to end where it is waited for.
    ended_ns: int
    #: Why it has failed, where that is known; else "".
    error: str
    #: How much of its time it has waited for others, as far as its backend has told.
    waited_ns: int
    #: When the program began to wait for an asynchronous message, the last time it did; 0 until it does.
    asked_ns: int = 0


class Totals(NamedTuple):
    """What has been counted of one kind of operation on one group."""

    #: How many have begun, have been seen to end well, and are known to have failed.
    begun: int = 0
    ended: int = 0
    failed: int = 0
    #: This rank's own contributions to those that have begun.
    nbytes: int = 0
    #: From beginning to end, of those that have ended well; and how much of it was waiting for others.
    busy_ns: int = 0
    waited_ns: int = 0

    def __add__(self, other: tuple[int, ...]) -> Totals:  # type: ignore[override]
        """Return the sums."""
        return Totals(*map(add, self, other))


#: Stands for an operation whose call has returned, or that may be waited for in any order; only its trail knows how.
Ticket = Any


def title(ticket: Ticket) -> str:
    """Return operation and number of what a ticket stands for."""
    op, number = (ticket[1], ticket[2]) if isinstance(ticket, list) else ticket.title()
    return f"{op}, number {number}"


class Trail(Protocol):
    """What this rank has begun and finished on one group. All threads may call, at any time."""

    @property
    def name(self) -> str:
        """The group's name."""

    @property
    def description(self) -> str:
        """What messages call the group."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The group's members."""

    @property
    def failure(self) -> str:
        """Why the group is of no use any more, in words; an error would keep the program's arrays alive."""

    @property
    def failed_ns(self) -> int:
        """Since when."""

    def begin(self, op: str, array: Any = "cpu", frames: int = 3) -> None:
        """Note that a collective begins.

        Args:
            op: The operation.
            array: This rank's own contribution, which is not kept; a kind of device if there is none.
            frames: How many frames there are from this one to the program's: by default its caller has been called by
                the public function that the program has called.
        """

    def end(self) -> None:
        """Note that the collective which this thread has begun last has ended well."""

    def issued(self) -> Ticket:
        """Note that the asynchronous call which this thread has begun last returns, and return what `ended` wants."""

    def begin_message(self, op: str, array: Any, peer: int | None, tag: int) -> Ticket:
        """Note that a message begins, and return what `ended` wants. `array` is not kept.

        Its caller is the public function that the program has called.
        """

    def released(self, ticket: Ticket) -> None:
        """Note that the call has returned while its operation goes on."""

    def asked(self, ticket: Ticket) -> None:
        """Note that the program waits from now on for a message whose call has returned."""

    def ended(self, ticket: Ticket, error: BaseException | None = None, source: int | None = None) -> None:
        """Note that an operation has been seen to end, and who has sent a message from anyone."""

    def broken(self, error: BaseException) -> None:
        """Note that the collective which this thread has begun last has failed."""

    def waited(self, ns: int, message: bool = False) -> None:
        """Note that the collective which was begun last, or the message begun or asked for, has waited for so long."""

    def fail(self, error: BaseException) -> None:
        """Note that the group is of no use any more."""

    def marks(self) -> tuple[Entry | None, Entry | None, Entry | None, Entry | None]:
        """Return the last collective begun and ended well, and the last message begun and ended well."""

    def totals(self) -> Mapping[str, tuple[int, ...]]:
        """Return what has been counted of each operation, in the order of `Totals`.

        That is all, but in Python only what the ring holds and what has left it since `count`.
        """


class FlightRecorder(Protocol):
    """The last operations of one rank, on all its groups, in the order in which they were begun."""

    #: Called with the trail of a group that has failed.
    on_failure: Callable[[Trail], object] | None

    def trail(self, name: str, description: str, ranks: tuple[int, ...]) -> Trail:
        """Return a new group's trail."""

    def trails(self) -> list[Trail]:
        """Return the trails of the groups that are alive."""

    def entries(self) -> list[Entry]:
        """Return the operations, the oldest first, however fast other threads note more."""

    def count(self) -> None:
        """Count from now on also what leaves the ring. What is compiled always does, as it costs next to nothing."""

    def clear(self) -> None:
        """Forget all, and so all that entries and trails keep alive of each other, and of the groups."""


def make_recorder(capacity: int = 1024) -> FlightRecorder:
    """Return a recorder: of so many operations if it is compiled."""
    compiled = native.module()
    if compiled is None:
        return SilentRecorder()
    made: FlightRecorder = compiled.FlightRecorder(Entry, skipped, capacity)
    return made


def _nothing(self: object, *args: Any, **kwargs: Any) -> None:
    """Note nothing."""


class SilentRecorder:
    """A recorder for a world in which nobody reads what is noted."""

    on_failure: Callable[[Trail], object] | None = None

    count = clear = _nothing

    def trail(self, name: str, description: str, ranks: tuple[int, ...]) -> Trail:
        """Return a new group's trail."""
        return _SilentTrail(name, description, ranks)

    def trails(self) -> list[Trail]:
        """Return nothing."""
        return []

    def entries(self) -> list[Entry]:
        """Return nothing."""
        return []


class _SilentTrail:
    """A trail that only numbers operations, as works are called by their numbers."""

    failure, failed_ns = "", 0

    end = released = asked = ended = broken = waited = _nothing

    def __init__(self, name: str, description: str, ranks: tuple[int, ...]) -> None:
        self.name, self.description, self.ranks = name, description, ranks
        self._collectives, self._messages = count(), count()
        self._last = threading.local()

    def begin(self, op: str, array: Any = "cpu", frames: int = 3) -> None:
        self._last.begun = [self, op, next(self._collectives)]

    def issued(self) -> Ticket:
        return self._last.begun

    def begin_message(self, op: str, array: Any, peer: int | None, tag: int) -> Ticket:
        return [self, op, next(self._messages)]

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or f"{type(error).__name__}: {error}"

    def marks(self) -> tuple[Entry | None, Entry | None, Entry | None, Entry | None]:
        return None, None, None, None

    def totals(self) -> Mapping[str, tuple[int, ...]]:
        return {}
