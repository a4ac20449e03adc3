"""Where messages meet the receives that wait for them: the half of `irecv` that many backends have in common.

A backend whose transport hands over whole messages gives each to `deliver` and implements `irecv` by `receive`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rankwise.backends.misfits import too_long, wrong_dtype
from rankwise.basics.arrays import Array, as_bytes
from rankwise.basics.dtypes import RAW, dtype_mark, dtype_text, known_dtype
from rankwise.basics.work import FutureWork, Work
from rankwise.errors import DistError

__all__ = ["Mailbox"]

Payload = bytes | bytearray | memoryview
#: A message's dtype, or what came of it by `dtype_mark`.
Dtype = np.dtype[Any] | int


class _Message(NamedTuple):
    src: int
    tag: int
    payload: Payload
    on_end: Callable[[DistError | None], object]
    dtype: Dtype | None


class _Receive(FutureWork):
    def __init__(self, box: Mailbox, array: Array, src: int | None, tag: int) -> None:
        super().__init__()
        self.box, self.buffer, self.src, self.tag = box, as_bytes(array), src, tag
        self.dtype = array.dtype

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
        receive = _Receive(self, array, src, tag)
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
        self,
        src: int,
        tag: int,
        payload: Payload,
        on_end: Callable[[DistError | None], object] = bool,
        dtype: Dtype | None = None,
    ) -> None:
        """Give a message that has come from `src` to the receive that waits for it, or keep it until one does.

        Args:
            src: The sender's group rank.
            tag: The tag.
            payload: The bytes; they must not change before `on_end`.
            on_end: Called when the message has been received, with the error if it was too long.
            dtype: Its dtype, or the mark of that where only marks travel; None where the transport cannot tell.
        """
        message = _Message(src, tag, payload, on_end, dtype)
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

    def keep(self, src: int) -> None:
        """Copy what has come from `src` and was not received yet: its sender takes the memory back."""
        with self._lock:
            self._messages = [m._replace(payload=bytes(m.payload)) if m.src == src else m for m in self._messages]

    def _meet(self, message: _Message, receive: _Receive) -> None:
        have, room = len(message.payload), len(receive.buffer)
        sender = self._names[message.src] if self._names else message.src
        if not _same_dtype(message.dtype, receive.dtype):
            # The message is gone, and its sender has done nothing wrong that it could know of.
            receive.fail(wrong_dtype(_text(message.dtype), sender, message.tag, dtype_text(receive.dtype)))
            message.on_end(None)
            return
        if have > room:
            error = too_long(have, sender, message.tag, room)
            receive.fail(error)
            message.on_end(error)
            return
        receive.buffer[:have] = message.payload
        receive.succeed(source=message.src)
        message.on_end(None)


def _same_dtype(have: Dtype | None, wanted: np.dtype[Any]) -> bool:
    """Tell whether a message may be received into a dtype; whoever asks for bytes gets those of anything."""
    if have is None or have is wanted:
        return True
    mark = dtype_mark(wanted)
    return mark == RAW or mark == (have if isinstance(have, int) else dtype_mark(have))


def _text(dtype: Dtype | None) -> str:
    if isinstance(dtype, int):
        return known_dtype(dtype) or f"another dtype (mark {dtype:#x})"
    return "unknown" if dtype is None else dtype_text(dtype)


def _fits(message: _Message, receive: _Receive) -> bool:
    return message.tag == receive.tag and receive.src in (None, message.src)
