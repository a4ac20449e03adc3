"""Where messages meet the receives that wait for them: the half of `irecv` that many backends have in common.

A backend whose transport hands over whole messages gives each to `deliver` and implements `irecv` by `receive`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rankwise.backends.misfits import too_long
from rankwise.basics.arrays import Array, as_bytes
from rankwise.basics.work import FutureWork, Work
from rankwise.errors import DistError

__all__ = ["Mailbox"]

Payload = bytes | bytearray | memoryview


class _Message(NamedTuple):
    src: int
    tag: int
    payload: Payload
    on_end: Callable[[DistError | None], object]


class _Receive(FutureWork):
    def __init__(self, box: Mailbox, buffer: memoryview, src: int | None, tag: int) -> None:
        super().__init__()
        self.box, self.buffer, self.src, self.tag = box, buffer, src, tag

    def cancel(self) -> bool:
        """Withdraw the receive if no message has met it."""
        return self.box.withdraw(self)


class Mailbox:
    """The messages and receives of one rank that have not met yet.

    Receives of one source and tag are met in the order they were begun, by messages in the order they came.

    Args:
        names: The global rank of each group rank, for messages to users.
    """

    def __init__(self, names: Sequence[int] = ()) -> None:
        self._names = names
        self._lock = threading.Lock()
        self._messages: list[_Message] = []
        self._receives: list[_Receive] = []
        self._failure: DistError | None = None
        self._lost: dict[int, DistError] = {}

    def receive(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive into `array` from `src`, or from anyone if None."""
        receive = _Receive(self, as_bytes(array), src, tag)
        with self._lock:
            failure = self._failure or (None if src is None else self._lost.get(src))
            message = next((m for m in self._messages if _fits(m, receive)), None)
            if message is not None:
                self._messages.remove(message)
            elif failure is None:
                self._receives.append(receive)
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
        message = _Message(src, tag, payload, on_end)
        with self._lock:
            receive = next((r for r in self._receives if _fits(message, r)), None)
            failure = self._failure
            if receive is not None:
                self._receives.remove(receive)
            elif failure is None:
                self._messages.append(message)
        if receive is not None:
            self._meet(message, receive)
        elif failure is not None:
            on_end(failure)  # lest the sender waits for a receive that will never be begun

    def withdraw(self, receive: Work) -> bool:
        """Forget a receive that no message has met; tell whether there was one."""
        with self._lock:
            waiting = receive in self._receives
            if waiting:
                self._receives.remove(receive)  # type: ignore[arg-type]
        return waiting

    def fail(self, error: DistError, src: int | None = None) -> None:
        """Fail the receives that wait for `src`, and those that will; for None all of them, from whomever.

        Messages of a lost source that have come before can still be received.
        """
        with self._lock:
            hit = [r for r in self._receives if src is None or r.src == src]
            self._receives = [r for r in self._receives if r not in hit]
            if src is None:
                self._failure = self._failure or error
                dropped, self._messages = self._messages, []
            else:
                self._lost.setdefault(src, error)
                dropped = []
        for receive in hit:
            receive.fail(error)
        for message in dropped:
            message.on_end(error)

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


def _fits(message: _Message, receive: _Receive) -> bool:
    return message.tag == receive.tag and receive.src in (None, message.src)
