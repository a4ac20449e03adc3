"""Where messages and receives meet, in the order they came. Every step takes the same time however many wait."""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import count
from typing import Generic, Protocol, TypeVar

from rankwise_gloo_tcp.protocol.frames import Header

__all__ = ["Arrival", "Matching", "Receive"]


class Receive(Protocol):
    """What a receive is to whoever matches it."""

    peer: int | None
    tag: int


R = TypeVar("R", bound=Receive)


class Arrival(Generic[R]):
    """A message that no receive has met yet.

    Attributes:
        source: The sender's group rank.
        header: Its header.
        data: Its bytes, as far as they are kept here; None for one that still lies with the sender.
        complete: Whether all bytes have come.
        local: The send, for a message to oneself.
        claimed: The receive that has met it while its bytes were still coming.
    """

    __slots__ = ("claimed", "complete", "data", "header", "local", "source")

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


class Matching(Generic[R]):
    """The receives and the messages of one rank that wait for each other.

    Both stand in lines, one for each tag and source; a number tells which of two lines has waited for longer.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._receives: dict[tuple[int, int | None], deque[tuple[int, R]]] = {}
        self._lines: dict[tuple[int, int], deque[int]] = {}
        #: All messages of a tag by their numbers, the oldest first: whom a receive from anyone meets. Not plain dicts, in
        #: which the first item is found slowly once many have been taken out.
        self._arrivals: dict[int, OrderedDict[int, Arrival[R]]] = {}

    def post(self, receive: R) -> Arrival[R] | None:
        """Return the message that `receive` meets; without one, keep the receive."""
        tag, source = receive.tag, receive.peer
        arrivals = self._arrivals.get(tag)
        if arrivals:
            if source is None:
                source = next(iter(arrivals.values())).source
            line = self._lines.get((tag, source))
            if line is not None:
                return self._remove(tag, source, line, arrivals)
        self._receives.setdefault((tag, receive.peer), deque()).append((next(self._numbers), receive))
        return None

    def knows(self, tag: int) -> bool:
        """Tell whether messages of a tag wait, or receives of it from anyone."""
        return tag in self._arrivals or (tag, None) in self._receives

    def awaits(self, source: int, tag: int) -> bool:
        """Tell whether a receive from a source waits."""
        return (tag, source) in self._receives

    def arrive(self, source: int, tag: int) -> R | None:
        """Return the receive that a message meets, and forget it."""
        receives = self._receives
        if not receives:
            return None
        own, anyones = receives.get((tag, source)), receives.get((tag, None))
        if own is not None and (anyones is None or own[0][0] < anyones[0][0]):
            return self._first((tag, source), own)
        return None if anyones is None else self._first((tag, None), anyones)

    def keep(self, arrival: Arrival[R]) -> None:
        """Keep a message until a receive meets it."""
        number, tag = next(self._numbers), arrival.header.tag
        self._lines.setdefault((tag, arrival.source), deque()).append(number)
        self._arrivals.setdefault(tag, OrderedDict())[number] = arrival

    def withdraw(self, receive: R) -> bool:
        """Forget a receive; tell whether it was still waiting."""
        key = receive.tag, receive.peer
        line = self._receives.get(key)
        for index, (_, waiting) in enumerate(line or ()):
            if waiting is receive:
                assert line is not None
                del line[index]
                if not line:
                    del self._receives[key]
                return True
        return False

    def receives(self, source: int | None) -> list[R]:
        """Return the receives that wait for a source, or for anyone."""
        return [r for (_, peer), line in self._receives.items() if peer == source for _, r in line]

    def arrivals(self) -> list[Arrival[R]]:
        """Return the messages that wait, of each tag the oldest first."""
        return [arrival for arrivals in self._arrivals.values() for arrival in arrivals.values()]

    def forget(self, arrival: Arrival[R]) -> None:
        """Forget a message."""
        tag, source = arrival.header.tag, arrival.source
        arrivals, line = self._arrivals[tag], self._lines[tag, source]
        number = next(number for number, waiting in arrivals.items() if waiting is arrival)
        del arrivals[number]
        line.remove(number)
        self._tidy(tag, source)

    def clear(self) -> tuple[list[R], list[Arrival[R]]]:
        """Forget everything, and return what was there."""
        receives = [receive for line in self._receives.values() for _, receive in line]
        arrivals = self.arrivals()
        self._receives.clear()
        self._lines.clear()
        self._arrivals.clear()
        return receives, arrivals

    def _first(self, key: tuple[int, int | None], line: deque[tuple[int, R]]) -> R:
        receive = line.popleft()[1]
        if not line:
            del self._receives[key]
        return receive

    def _remove(
        self, tag: int, source: int, line: deque[int], arrivals: OrderedDict[int, Arrival[R]]
    ) -> Arrival[R]:
        arrival = arrivals.pop(line.popleft())
        self._tidy(tag, source)
        return arrival

    def _tidy(self, tag: int, source: int) -> None:
        if not self._lines[tag, source]:
            del self._lines[tag, source]
        if not self._arrivals[tag]:
            del self._arrivals[tag]
