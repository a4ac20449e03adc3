"""Where messages meet the receives that wait for them: the half of `irecv` that many backends have in common.

A backend whose transport delivers whole messages hands each to `deliver`, and implements `irecv` by `receive`.
"""

from __future__ import annotations

import threading
from ast import literal_eval
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.lib.format import descr_to_dtype, dtype_to_descr

from rankwise.backends.landing import ApartWork
from rankwise.basics.arrays import RAW, Array, as_bytes, dtype_mark, dtype_marked, dtype_text, known_dtype
from rankwise.basics.messages import Status, too_long, wrong_dtype
from rankwise.basics.tracebacks import anew
from rankwise.basics.work import Work
from rankwise.errors import DistError

Payload = bytes | bytearray | memoryview
#: A message's dtype, or what came of it by `dtype_mark`.
Dtype = np.dtype[Any] | int

_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")


@dataclass(eq=False)
class _Message:
    number: int
    src: int
    tag: int
    payload: Payload
    on_end: Callable[[DistError | None], object]
    dtype: Dtype | None


class _Receive(ApartWork):
    def __init__(self, box: Mailbox, array: Array, src: int | None, tag: int) -> None:
        super().__init__()
        self.box, self.buffer, self.src, self.tag = box, as_bytes(array), src, tag
        self.dtype = array.dtype
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

    def __len__(self) -> int:
        return sum(map(len, self._lines.copy().values()))

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
        #: Failures that are still to be carried out, and whose.
        self._failing: deque[tuple[DistError, int | None]] = deque()

    def __repr__(self) -> str:
        return f"<Mailbox: {len(self._messages)} messages and {len(self._receives)} receives wait>"

    def receive(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive into `array` from `src`, or from anyone if None."""
        receive = _Receive(self, array, src, tag)
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
        self._carry_out_failures()
        return receive

    def probe(self, src: int | None, tag: int) -> Status | None:
        """Return what the message is that a receive would meet now, or None.

        Raises:
            DistError: None will come any more.
        """
        with self._lock:
            failure = self._failure or (None if src is None else self._lost.get(src))
            message = self._messages.first(tag) if src is None else self._messages_from.first((src, tag))
        self._carry_out_failures()
        if message is not None:
            return Status(message.src, tag, len(message.payload), _told(message.dtype))
        if failure is not None:
            raise anew(failure)
        return None

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
        with self._lock:
            message = _Message(next(self._numbers), src, tag, payload, on_end, dtype)
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
            on_end(failure)  # or the sender would wait for a receive that never begins
        self._carry_out_failures()

    def withdraw(self, receive: Work) -> bool:
        """Forget a receive that no message has met; tell whether there was one."""
        if not isinstance(receive, _Receive) or receive.box is not self:
            return False
        with self._lock:
            removed = self._receives.remove((receive.src, receive.tag), receive.number)
        self._carry_out_failures()
        return removed

    def fail(self, error: DistError, src: int | None = None) -> None:
        """Fail the receives that wait for `src`, and those that will; for None all of them, from any rank.

        Messages of a lost source that have come before can still be received. Never blocks: a signal handler may call
        this while the code that it has interrupted holds the lock, and then that code carries it out.
        """
        self._failing.append((error, src))
        self._carry_out_failures()

    def keep(self, src: int) -> None:
        """Copy what has come from `src` and was not received yet: its sender takes the memory back."""
        with self._lock:
            for (source, _), message in self._messages_from:
                if source == src:
                    message.payload = bytes(message.payload)
        self._carry_out_failures()

    def _carry_out_failures(self) -> None:
        """Do what `fail` was asked for, unless somebody holds the lock, who then does it afterwards."""
        # It is looked at and not tried: an interrupt just after it was acquired would leave it held for good.
        while self._failing and not self._lock.locked():
            with self._lock:
                ends = self._take_failed(*self._failing.popleft()) if self._failing else []  # or another was faster
            for end in ends:
                end()

    def _take_failed(self, error: DistError, src: int | None) -> list[Callable[[], object]]:
        """Take out what a failure hits, and return what ends it."""
        hit = [r for (source, _), r in self._receives if src is None or source == src]
        hit.sort(key=lambda receive: receive.number)
        for receive in hit:
            self._receives.remove((receive.src, receive.tag), receive.number)
        dropped: list[_Message] = []
        if src is not None:
            self._lost.setdefault(src, error)
        else:
            self._failure = self._failure or error
            dropped = sorted((message for _, message in self._messages), key=lambda message: message.number)
            self._messages, self._messages_from = _Lines(), _Lines()
        return [*(partial(r.fail, error) for r in hit), *(partial(m.on_end, error) for m in dropped)]

    def _take(self, message: _Message) -> None:
        self._messages_from.remove((message.src, message.tag), message.number)
        self._messages.remove(message.tag, message.number)

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
        receive.nbytes = have
        receive.succeed(source=message.src)
        message.on_end(None)


def _same_dtype(have: Dtype | None, wanted: np.dtype[Any]) -> bool:
    """Tell whether a message may be received into a dtype; a receive of bytes takes those of any dtype."""
    if have is None or have is wanted:
        return True
    mark = dtype_mark(wanted)
    return mark == RAW or mark == (have if isinstance(have, int) else dtype_mark(have))


def _told(dtype: Dtype | None) -> np.dtype[Any] | None:
    return dtype_marked(dtype) if isinstance(dtype, int) else dtype


def _text(dtype: Dtype | None) -> str:
    if isinstance(dtype, int):
        return known_dtype(dtype) or f"another dtype (mark {dtype:#x})"
    return "unknown" if dtype is None else dtype_text(dtype)


#: How long a description may be; a longer one is left out, and errors name the mark.
_MOST_NBYTES = 60_000


# The dtype of a message on its way: a mark of 32 bits, and for dtypes that not every rank knows a description
#
# A backend that declares `message_dtypes` sends what `describe_dtype` returns, and gives what `described_dtype` makes
# of it to `Mailbox.deliver`: then an error names both dtypes, structured ones included.


@lru_cache(maxsize=256)
def describe_dtype(dtype: np.dtype[Any]) -> tuple[int, bytes]:
    """Return a dtype's mark, and a description if not every rank knows the dtype by its mark.

    Examples:
        >>> describe_dtype(np.dtype("f4"))[1]
        b''
    """
    mark = dtype_mark(dtype)
    if known_dtype(mark):
        return mark, b""
    try:
        described = repr(dtype_to_descr(dtype)).encode()
    except ValueError:  # fields that overlap have none
        described = b""
    return mark, described if len(described) <= _MOST_NBYTES else b""


@lru_cache(maxsize=256)
def described_dtype(mark: int, described: bytes) -> np.dtype[Any] | int:
    """Return the dtype that has been described; the mark itself if that says all, or the description too little."""
    with suppress(ValueError, SyntaxError, TypeError):
        dtype = descr_to_dtype(literal_eval(described.decode())) if described else None
        if dtype is not None and dtype_mark(dtype) == mark:
            return dtype
    return mark
