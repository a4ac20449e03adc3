"""What a server holds for its clients: requests in pieces or waiting, unread replies, lent items."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, NamedTuple

from rankwise.errors import ProtocolError
from rankwise_stores.queues import LEASE_S
from rankwise_stores.tcp import wire

#: A client has one request at a time on each connection.
_MAX_OF_ONE = 8
_MAX_COUNT = 64 << 10
_MAX_NBYTES = 256 << 20
_BATCH = 256


class Waiter:
    """A request that is not answered yet.

    Args:
        client: Who asks.
        request: What.
        nbytes: How large the request is.
    """

    def __init__(self, client: bytes, request: wire.StoreRequest, nbytes: int) -> None:
        self.client, self.nbytes = client, nbytes
        self.number = request.number
        self.patient = request.wait_s is not None
        #: What to do when the key has changed.
        self.operation, self.args = request.operation, tuple(request.args)
        self.until = monotonic() + (request.wait_s or 0.0)
        #: Whether it is among those that wait for a key; whether its time is watched.
        self.waiting = self.timed = False
        self.key = ""
        #: How large the reply is that waits for room.
        self.reply_nbytes = 0

    def __lt__(self, other: Waiter) -> bool:
        return self.until < other.until


class Waiting:
    """All of them, within bounds."""

    def __init__(self) -> None:
        #: Those that wait for each key, in the order they came.
        self._of_key: dict[str, dict[Waiter, None]] = {}
        self._count_of: Counter[bytes] = Counter()
        self._count = self._nbytes = 0
        self._timers: list[Waiter] = []

    def add(self, waiter: Waiter, key: str) -> bool:
        """Let a request wait for a key to change, or for its time to pass; tell whether there is room for it."""
        if (
            self._count_of[waiter.client] >= _MAX_OF_ONE
            or self._count >= _MAX_COUNT
            or self._nbytes + waiter.nbytes > max(_MAX_NBYTES, waiter.nbytes)
        ):
            return False
        self._change(waiter, 1)
        self._of_key.setdefault(key, {})[waiter] = None
        waiter.key = key
        if not waiter.timed:
            waiter.timed = True
            heapq.heappush(self._timers, waiter)
        return True

    def take(self, key: str) -> Iterator[Waiter]:
        """Take those that have waited for a key so far, one by one."""
        for waiter in list(self._of_key.get(key, ())):
            self.remove(waiter)
            yield waiter

    def first(self, key: str) -> Waiter | None:
        """Return the one that has waited longest for a key."""
        return next(iter(self._of_key.get(key, ())), None)

    def withdraw(self, key: str, is_meant: Callable[[Waiter], bool]) -> None:
        """Forget those that are meant: nobody waits for their answers any more."""
        for waiter in [waiter for waiter in self._of_key.get(key, ()) if is_meant(waiter)]:
            self.remove(waiter)

    def has(self, key: str) -> bool:
        """Tell whether any wait for a key."""
        return key in self._of_key

    def take_late(self) -> Iterator[Waiter]:
        """Take those whose time is up, one by one."""
        now = monotonic()
        while self._timers and self._timers[0].until <= now:
            waiter = heapq.heappop(self._timers)
            waiter.timed = False
            if waiter.waiting:
                self.remove(waiter)
                yield waiter

    def patience_s(self) -> float | None:
        """Return how long it is until the next one's time is up; None for ever."""
        if len(self._timers) > 2 * self._count + _BATCH:
            for waiter in self._timers:
                waiter.timed = waiter.waiting
            self._timers = [waiter for waiter in self._timers if waiter.waiting]
            heapq.heapify(self._timers)
        while self._timers and not self._timers[0].waiting:
            heapq.heappop(self._timers).timed = False
        return max(0.0, self._timers[0].until - monotonic()) if self._timers else None

    def remove(self, waiter: Waiter) -> None:
        """Forget one that waits."""
        line = self._of_key[waiter.key]
        del line[waiter]
        if not line:
            del self._of_key[waiter.key]
        self._change(waiter, -1)

    def _change(self, waiter: Waiter, change: int) -> None:
        waiter.waiting = change > 0
        self._count += change
        self._nbytes += change * waiter.nbytes
        self._count_of[waiter.client] += change
        if not self._count_of[waiter.client]:
            del self._count_of[waiter.client]


# How much a server has sent that its clients have not read: it would otherwise grow in the server's memory

#: Smaller replies need no receipt: ZeroMQ takes only so many of them for one connection.
_LARGE_NBYTES = 4096
MAX_OF_ONE_NBYTES = 32 << 20
_MAX_TOTAL_NBYTES = 256 << 20
_RECEIPT_NBYTES = 8


def is_large(value: Any) -> bool:
    """Tell whether a reply with this value needs a receipt."""
    return nbytes_of(value) > _LARGE_NBYTES


def nbytes_of(value: Any) -> int:
    """Return about how many bytes a result takes."""
    if isinstance(value, wire.Packed):
        return value.nbytes
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(map(nbytes_of, value)) + 8 * len(value)
    return 8


class Unread:
    """The large replies of which the clients have not confirmed the receipt.

    A receipt is a number that only who has read the reply can know.
    """

    def __init__(self) -> None:
        self._of: dict[bytes, dict[bytes, int]] = {}
        self._nbytes = 0

    def fits_client(self, client: bytes, nbytes: int) -> bool:
        """Tell whether a client may be sent so many more bytes."""
        unread = sum(self._of.get(client, {}).values())
        return not unread or unread + nbytes <= MAX_OF_ONE_NBYTES

    def fits_all(self, nbytes: int) -> bool:
        """Tell whether there is room for so many more bytes, for any client."""
        return not self._nbytes or self._nbytes + nbytes <= _MAX_TOTAL_NBYTES

    def add(self, client: bytes, nbytes: int) -> bytes:
        """Note a reply, and return the receipt to send with it."""
        receipt = os.urandom(_RECEIPT_NBYTES)
        self._of.setdefault(client, {})[receipt] = nbytes
        self._nbytes += nbytes
        return receipt

    def confirm(self, client: bytes, receipt: bytes) -> bool:
        """Forget what a client has read: the reply with this receipt; tell whether there was one."""
        unread = self._of.get(client)
        if unread is None or receipt not in unread:
            return False
        self._nbytes -= unread.pop(receipt)
        if not unread:
            del self._of[client]
        return True

    def forget(self, client: bytes) -> None:
        """Forget a client that is gone; ZeroMQ has dropped what it was to get."""
        self._nbytes -= sum(self._of.pop(client, {}).values())

    def clients(self) -> Sequence[bytes]:
        """Return those that have something to read."""
        return list(self._of)


# The items of queues that clients hold and have not confirmed: a client that is gone takes none with it
#
# An item that has been confirmed is *leaving* until its client has read that it was in time: else that one gives it
# back, and who has been told meanwhile that the queue is empty would take the item for lost.


class _Loan(NamedTuple):
    client: bytes
    queue: str
    until: float


class Lent:
    """Who holds which item, and until when at most; and which items are leaving."""

    def __init__(self) -> None:
        self._loans: dict[bytes, _Loan] = {}
        self._leaving: dict[bytes, _Loan] = {}

    def __bool__(self) -> bool:
        return bool(self._loans or self._leaving)

    def lend(self, client: bytes, queue: str, token: bytes) -> None:
        """Note that a client has been sent an item."""
        self._loans[token] = _Loan(client, queue, monotonic() + LEASE_S)

    def settle(self, token: bytes) -> None:
        """Forget an item that has been confirmed or released."""
        self._loans.pop(token, None)
        self._leaving.pop(token, None)

    def leave(self, client: bytes, queue: str, token: bytes) -> None:
        """Note that a client is told that it has an item."""
        self._leaving[token] = _Loan(client, queue, monotonic() + LEASE_S)

    def has_left(self, token: bytes) -> str | None:
        """Forget an item whose client has read so; return its queue, or None if the token is none of these."""
        loan = self._leaving.pop(token, None)
        return None if loan is None else loan.queue

    def is_leaving(self, queue: str) -> bool:
        """Tell whether an item of a queue is leaving."""
        return any(loan.queue == queue for loan in self._leaving.values())

    def forget_late(self) -> set[str]:
        """Forget the items that have been leaving for too long; return their queues."""
        now = monotonic()
        late = [token for token, loan in self._leaving.items() if loan.until <= now]
        return {self._leaving.pop(token).queue for token in late}

    def clients(self) -> set[bytes]:
        """Return those that hold something."""
        return {loan.client for loan in self._loans.values()}

    def take_late(self) -> Sequence[tuple[str, bytes]]:
        """Take queue and token of the items that have been held for too long."""
        now = monotonic()
        return self._take([token for token, loan in self._loans.items() if loan.until <= now])

    def take_of(self, client: bytes) -> Sequence[tuple[str, bytes]]:
        """Take queue and token of what a client holds that is gone."""
        return self._take([token for token, loan in self._loans.items() if loan.client == client])

    def _take(self, tokens: Sequence[bytes]) -> Sequence[tuple[str, bytes]]:
        return [(self._loans.pop(token).queue, token) for token in tokens]


# ------------------ requests that come in pieces, put together within bounds
#
# Each piece is a message of its own. As frames of one message they would all lie in ZeroMQ's memory, however many a
# client chose to send, before any of them could be looked at.


class _Begun:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.nbytes = 0


class Assembly:
    """What clients have begun to send."""

    def __init__(self) -> None:
        #: The client that has sent a piece last stands last.
        self._begun: dict[bytes, _Begun] = {}
        self._nbytes = 0

    def add(self, client: bytes, data: bytes, more: bool) -> bytes | None:
        """Take a piece of a request, and return the request if it is the last one.

        Raises:
            ProtocolError: The request is too large; what has come of it is forgotten.
        """
        begun = self._begun.pop(client, None)
        if begun is None:
            if not more:
                return data
            begun = _Begun()
        self._nbytes += len(data)
        begun.nbytes += len(data)
        begun.pieces.append(data)
        if not more or begun.nbytes > wire.MAX_MESSAGE_NBYTES:
            self._nbytes -= begun.nbytes
            if begun.nbytes > wire.MAX_MESSAGE_NBYTES:
                raise ProtocolError("the message is too large")
            return b"".join(begun.pieces)
        self._begun[client] = begun
        while self._nbytes > _MAX_TOTAL_NBYTES:
            # Whose last piece came longest ago has perhaps gone; if not, it hears that what follows is no request.
            self._nbytes -= self._begun.pop(next(iter(self._begun))).nbytes
        return None
