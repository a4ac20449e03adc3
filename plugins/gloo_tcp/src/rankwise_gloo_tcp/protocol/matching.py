"""Where messages and receives meet, in the order they came. Every step takes the same time however many wait."""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import Generic, Protocol, TypeVar

from rankwise_gloo_tcp.protocol.frames import Header


class Receive(Protocol):
    """What a receive is to the matching."""

    peer: int | None
    tag: int


R = TypeVar("R", bound=Receive)
T = TypeVar("T")


class Arrival(Generic[R]):
    """A message that no receive has met yet.

    Attributes:
        source: The sender's group rank.
        header: Its header.
        data: Its bytes, as far as they are kept here; None for one that still lies with the sender.
        complete: Whether all bytes have come.
        local: The send, for a message to oneself.
        claimed: The receive that has met it while its bytes were still coming.
        number: Its place among those that wait.
    """

    __slots__ = ("claimed", "complete", "data", "header", "local", "number", "source")

    def __init__(
        self,
        source: int,
        header: Header,
        data: bytearray | memoryview | None = None,
        complete: bool = False,
        local: R | None = None,
    ) -> None:
        self.source, self.header, self.data, self.complete, self.local = source, header, data, complete, local
        self.claimed: R | None = None
        self.number = -1


class Matching(Generic[R]):
    """The receives and the messages of one rank that wait for each other.

    Both stand in lines, one for each tag and source; a number tells which of two lines has waited for longer. No line
    is a plain dict, in which the first item is found slowly once many have been taken out.
    """

    __slots__ = ("lines", "numbers", "waiting_arrivals", "waiting_receives")

    def __init__(self) -> None:
        self.numbers = count()
        #: The receives of a tag and source, the oldest first, with their numbers, by their identities.
        self.waiting_receives: dict[tuple[int, int | None], OrderedDict[int, tuple[int, R]]] = {}
        #: The messages of a tag and source, and all those of a tag, by their numbers, the oldest first. A receive from
        #: anyone meets the first of the latter.
        self.lines: dict[tuple[int, int], OrderedDict[int, Arrival[R]]] = {}
        self.waiting_arrivals: dict[int, OrderedDict[int, Arrival[R]]] = {}

    def post(self, receive: R) -> Arrival[R] | None:
        """Return the message that `receive` meets; without one, keep the receive."""
        tag, source = receive.tag, receive.peer
        arrival = self.first(source, tag)
        if arrival is not None:
            self.forget(arrival)
            return arrival
        self.waiting_receives.setdefault((tag, source), OrderedDict())[id(receive)] = next(self.numbers), receive
        return None

    def first(self, source: int | None, tag: int) -> Arrival[R] | None:
        """Return the message that has waited for the longest, of a source or of anyone."""
        found = self.waiting_arrivals.get(tag) if source is None else self.lines.get((tag, source))
        return next(iter(found.values())) if found else None

    def is_clear(self, source: int, tag: int) -> bool:
        """Tell whether a receive from a source would be the next to be served: nothing waits that is before it."""
        receives = self.waiting_receives
        return not ((tag, source) in self.lines or (tag, source) in receives or (tag, None) in receives)

    def arrive(self, source: int, tag: int) -> R | None:
        """Return the receive that a message meets, and forget it."""
        receives = self.waiting_receives
        if not receives:
            return None
        own, anyones = receives.get((tag, source)), receives.get((tag, None))
        if own is not None and (anyones is None or _first(own)[0] < _first(anyones)[0]):
            receive = _first(own)[1]
        elif anyones is not None:
            receive = _first(anyones)[1]
        else:
            return None
        self.withdraw(receive)
        return receive

    def keep(self, arrival: Arrival[R]) -> None:
        """Keep a message until a receive meets it."""
        number, tag = next(self.numbers), arrival.header.tag
        arrival.number = number
        self.lines.setdefault((tag, arrival.source), OrderedDict())[number] = arrival
        self.waiting_arrivals.setdefault(tag, OrderedDict())[number] = arrival

    def withdraw(self, receive: R) -> bool:
        """Forget a receive; tell whether it was still waiting."""
        key = receive.tag, receive.peer
        line = self.waiting_receives.get(key)
        if line is None or line.pop(id(receive), None) is None:
            return False
        if not line:
            del self.waiting_receives[key]
        return True

    def receives(self, source: int | None) -> list[R]:
        """Return the receives that wait for a source, or for anyone."""
        return [r for (_, peer), line in self.waiting_receives.items() if peer == source for _, r in line.values()]

    def waiting(self) -> tuple[int, int]:
        """Return how many receives wait for messages, and how many messages for receives."""
        return sum(map(len, self.waiting_receives.values())), sum(map(len, self.waiting_arrivals.values()))

    def arrivals(self) -> list[Arrival[R]]:
        """Return the messages that wait, of each tag the oldest first."""
        return [arrival for arrivals in self.waiting_arrivals.values() for arrival in arrivals.values()]

    def forget(self, arrival: Arrival[R]) -> None:
        """Forget a message that waits."""
        tag, source, number = arrival.header.tag, arrival.source, arrival.number
        line, arrivals = self.lines[tag, source], self.waiting_arrivals[tag]
        del line[number], arrivals[number]
        if not line:
            del self.lines[tag, source]
        if not arrivals:
            del self.waiting_arrivals[tag]

    def clear(self) -> tuple[list[R], list[Arrival[R]]]:
        """Forget everything, and return what was there."""
        receives = [receive for line in self.waiting_receives.values() for _, receive in line.values()]
        arrivals = self.arrivals()
        self.waiting_receives.clear()
        self.lines.clear()
        self.waiting_arrivals.clear()
        return receives, arrivals


def _first(line: OrderedDict[int, T]) -> T:
    return next(iter(line.values()))
