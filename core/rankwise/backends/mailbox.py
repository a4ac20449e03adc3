"""Where messages meet the receives that wait for them: the half of `irecv` that many backends have in common.

A backend whose transport hands over whole messages gives each to `deliver` and implements `irecv` by `receive`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from rankwise.backends.misfits import too_long
from rankwise.basics.arrays import Array, as_bytes
from rankwise.basics.work import FutureWork, Work
from rankwise.errors import DistError

__all__ = ["Mailbox"]

Payload = bytes | bytearray | memoryview

_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")


class _Message(NamedTuple):
    number: int
    src: int
    tag: int
    payload: Payload
    on_end: Callable[[DistError | None], object]


class _Receive(FutureWork):
    def __init__(self, box: Mailbox, buffer: memoryview, src: int | None, tag: int) -> None:
        super().__init__()
        self.box, self.buffer, self.src, self.tag = box, buffer, src, tag
        self.number = -1

    def cancel(self) -> bool:
        """Withdraw the receive if no message has met it."""
        return self.box.withdraw(self)


class _Lines(Generic[_Key, _Item]):
    """Items that stand in line under a key, in the order of their numbers; each step costs the same for any number."""

    def __init__(self) -> None:
        # Not plain dicts: the first item of one from which many have been taken is found slowly.
        self._lines: dict[_Key, OrderedDict[int, _Item]] = {}

    def add(self, key: _Key, number: int, item: _Item) -> None:
        self._lines.setdefault(key, OrderedDict())[number] = item

    def first(self, key: _Key) -> _Item | None:
        line = self._lines.get(key)
        return None if line is None else next(iter(line.values()))

    def remove(self, key: _Key, number: int) -> bool:
        line = self._lines.get(key)
        if line is None or line.pop(number, None) is None:
            return False
        if not line:
            del self._lines[key]
        return True

    def __iter__(self) -> Iterator[tuple[_Key, _Item]]:
        return ((key, item) for key, line in self._lines.items() for item in line.values())


class Mailbox:
    """The messages and receives of one rank that have not met yet.

    Receives of one source and tag are met in the order they were begun, by messages in the order they came.

    Args:
        names: The global rank of each group rank, for messages to users.
    """

    def __init__(self, names: Sequence[int] = ()) -> None:
        self._names = names
        self._lock = threading.Lock()
        self._numbers = count()
        #: Each message stands in two lines: that of its source and tag, and, for receives from anyone, that of its tag.
        self._messages_from: _Lines[tuple[int, int], _Message] = _Lines()
        self._messages: _Lines[int, _Message] = _Lines()
        self._receives: _Lines[tuple[int | None, int], _Receive] = _Lines()
        self._failure: DistError | None = None
        self._lost: dict[int, DistError] = {}

    def receive(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive into `array` from `src`, or from anyone if None."""
        receive = _Receive(self, as_bytes(array), src, tag)
        with self._lock:
            failure = self._failure or (None if src is None else self._lost.get(src))
            message = self._messages.first(tag) if src is None else self._messages_from.first((src, tag))
            if message is not None:
                self._take(message)
            elif failure is None:
                receive.number = next(self._numbers)
                self._receives.add((src, tag), receive.number, receive)
        if message is not None:
            self._meet(message, receive)
        elif failure is not None:
            receive.fail(failure)
        return receive

    def deliver(
        self, src: int, tag: int, payload: Payload, on_end: Callable[[DistError | None], object] = bool
    ) -> None:
        """Give a message that has come from `src` to the receive that waits for it, or keep it until one does.

        Args:
            src: The sender's group rank.
            tag: The tag.
            payload: The bytes; they must not change before `on_end`.
            on_end: Called when the message has been received, with the error if it did not fit.
        """
        with self._lock:
            message = _Message(next(self._numbers), src, tag, payload, on_end)
            waiting = self._receives.first((src, tag)), self._receives.first((None, tag))
            receive = min((r for r in waiting if r is not None), key=lambda r: r.number, default=None)
            failure = self._failure
            if receive is not None:
                self._receives.remove((receive.src, tag), receive.number)
            elif failure is None:
                self._messages_from.add((src, tag), message.number, message)
                self._messages.add(tag, message.number, message)
        if receive is not None:
            self._meet(message, receive)
        elif failure is not None:
            on_end(failure)  # lest the sender waits for a receive that will never be begun

    def withdraw(self, receive: Work) -> bool:
        """Forget a receive that no message has met; tell whether there was one."""
        if not isinstance(receive, _Receive) or receive.box is not self:
            return False
        with self._lock:
            return self._receives.remove((receive.src, receive.tag), receive.number)

    def fail(self, error: DistError, src: int | None = None) -> None:
        """Fail the receives that wait for `src`, and those that will; for None all of them, from whomever.

        Messages of a lost source that have come before can still be received.
        """
        with self._lock:
            hit = [r for (source, _), r in self._receives if src is None or source == src]
            hit.sort(key=lambda receive: receive.number)
            for receive in hit:
                self._receives.remove((receive.src, receive.tag), receive.number)
            dropped: list[_Message] = []
            if src is None:
                self._failure = self._failure or error
                dropped = sorted((message for _, message in self._messages), key=lambda message: message.number)
                self._messages, self._messages_from = _Lines(), _Lines()
            else:
                self._lost.setdefault(src, error)
        for receive in hit:
            receive.fail(error)
        for message in dropped:
            message.on_end(error)

    def _take(self, message: _Message) -> None:
        self._messages_from.remove((message.src, message.tag), message.number)
        self._messages.remove(message.tag, message.number)

    def _meet(self, message: _Message, receive: _Receive) -> None:
        have, room = len(message.payload), len(receive.buffer)
        if have > room:
            name = self._names[message.src] if self._names else message.src
            error = too_long(have, name, message.tag, room)
            receive.fail(error)
            message.on_end(error)
            return
        receive.buffer[:have] = message.payload
        receive.succeed(source=message.src)
        message.on_end(None)

