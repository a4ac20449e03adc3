"""Where messages and receives meet. Both are kept in the order they came, per tag."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rankwise_gloo_tcp.protocol.frames import Header

if TYPE_CHECKING:
    from rankwise_gloo_tcp.engine.request import Request

__all__ = ["Arrival", "Matching"]


class Arrival:
    """A message that no receive has met yet.

    Attributes:
        source: The sender's group rank.
        header: Its header.
        data: Its bytes as far as they are kept here; None for one that still lies with the sender.
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
        local: Request | None = None,
    ) -> None:
        self.source, self.header, self.data, self.complete, self.local = source, header, data, complete, local
        self.claimed: Request | None = None


class Matching:
    """The receives and the messages of one rank that wait for each other."""

    def __init__(self) -> None:
        self._receives: defaultdict[int, list[Request]] = defaultdict(list)
        self._arrivals: defaultdict[int, list[Arrival]] = defaultdict(list)

    def post(self, receive: Request) -> Arrival | None:
        """Return the message that `receive` meets; without one, keep the receive."""
        arrivals = self._arrivals.get(receive.tag)
        if arrivals:
            for index, arrival in enumerate(arrivals):
                if receive.peer is None or receive.peer == arrival.source:
                    del arrivals[index]
                    if not arrivals:
                        del self._arrivals[receive.tag]
                    return arrival
        self._receives[receive.tag].append(receive)
        return None

    def knows(self, tag: int) -> bool:
        """Tell whether receives or messages of a tag wait."""
        return tag in self._receives or tag in self._arrivals

    def arrive(self, source: int, tag: int) -> Request | None:
        """Return the receive that a message meets, and forget it."""
        receives = self._receives.get(tag)
        if receives:
            for index, receive in enumerate(receives):
                if receive.peer is None or receive.peer == source:
                    del receives[index]
                    if not receives:
                        del self._receives[tag]
                    return receive
        return None

    def keep(self, arrival: Arrival) -> None:
        """Keep a message until a receive meets it."""
        self._arrivals[arrival.header.tag].append(arrival)

    def withdraw(self, receive: Request) -> bool:
        """Forget a receive; tell whether it was still waiting."""
        receives = self._receives.get(receive.tag, [])
        if receive not in receives:
            return False
        receives.remove(receive)
        if not receives:
            del self._receives[receive.tag]
        return True

    def clear(self) -> tuple[list[Request], list[Arrival]]:
        """Forget everything, and return what was there."""
        receives = [receive for waiting in self._receives.values() for receive in waiting]
        arrivals = [arrival for waiting in self._arrivals.values() for arrival in waiting]
        self._receives.clear()
        self._arrivals.clear()
        return receives, arrivals
