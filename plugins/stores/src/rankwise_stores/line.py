"""What a store needs of a server that somebody else runs: lines to it, and requests that are carried out once.

A line is one connection with a number, which the server knows too: each swap takes the next number, in the same step
in which it is carried out. If the answer to a swap is lost, `settle` asks for that number instead. Either it gets the
number, and then the swap has not been carried out and never will be, even if the request still travels; or the swap has
taken it. So a swap that is repeated is never carried out twice.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from rankwise.errors import DistNetworkError, DistStoreError
from rankwise.stores import Deadline, heed

_R = TypeVar("_R")

#: How long to wait for an answer before the line is taken for dead: a server that has moved answers on a new one.
_ANSWER_S = 5.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.25


class LostError(Exception):
    """No answer has come: whether the server has carried the request out, nobody knows."""


class Seat(NamedTuple):
    """One user of a life.

    Attributes:
        beat: What it has last told, which begins with what tells it from all others.
        is_present: Whether it has told so within the last seconds.
    """

    beat: str
    is_present: bool


class Life(NamedTuple):
    """What lies under a prefix from when the first user comes until the last one goes.

    Attributes:
        mark: Tells it from all others.
        size: How many ranks it has; -1 for any number of users.
        lease: What the server calls the lease of its keys, if it has leases.
    """

    mark: str
    size: int
    lease: str = ""


class Census(NamedTuple):
    """Who is there under a prefix: the life, if there is one, and its users by their names."""

    life: Life | None
    seats: dict[str, Seat]


class Line(ABC):
    """One connection. One thread at a time; each request returns within its seconds, or raises.

    A request may raise `LostError`, and the next one connects again, or `DistStoreError`, if the server refuses.
    """

    def __init__(self) -> None:
        self.name = os.urandom(8).hex()
        #: How many numbers of this line have been taken.
        self.number = 0
        #: Whether a swap has begun of which it is not known whether it has taken its number.
        self.is_open = False

    @abstractmethod
    def read(self, mark: str, keys: Sequence[str], within_s: float) -> list[bytes | None]:
        """Return what is under some keys of a life; None where nothing is."""

    @abstractmethod
    def names(self, mark: str, within_s: float) -> list[str]:
        """Return all keys of a life."""

    @abstractmethod
    def swap(
        self, life: Life, key: str, expected: bytes | None, desired: bytes | None, within_s: float
    ) -> bytes | None:
        """Replace a value if it is the expected one, and take a number in the same step; return what was found."""

    @abstractmethod
    def settle(self, life: Life, within_s: float) -> bool:
        """Take the number of a swap whose answer was lost; tell whether the swap had it, so was carried out."""

    @abstractmethod
    def census(self, within_s: float) -> Census:
        """Return who is there."""

    @abstractmethod
    def found(self, before: Life | None, life: Life, seat: str, beat: str, within_s: float) -> Life | None:
        """Begin a life in place of another, of which nobody is present; None if another one has begun."""

    @abstractmethod
    def sit(self, life: Life, seat: str, beat: str, within_s: float) -> bool:
        """Take a seat in a life; tell whether it goes on, and nobody else has taken it."""

    @abstractmethod
    def beat(self, life: Life, seat: str, beat: str, within_s: float) -> bool:
        """Say that a user is present; tell whether the life goes on."""

    @abstractmethod
    def leave(self, life: Life, seat: str, is_rank: bool, within_s: float) -> None:
        """Give a seat up; the last one removes all. One that was a rank's is not taken again."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection; the next request makes another one."""


class Ear(ABC):
    """What tells a thread that waits of changes. One thread at a time."""

    #: The key that is listened for, None before the first.
    key: str | None = None

    @abstractmethod
    def listen(self, mark: str, key: str, within_s: float) -> None:
        """Listen for changes of a key from now on, and for no other."""

    @abstractmethod
    def wait(self, within_s: float) -> bool:
        """Return once the key has changed; tell whether it has, else the time is over."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection."""


class Server(ABC):
    """Where a server is, and how to talk to it."""

    #: How messages call it, without a password.
    name: str
    #: The host, for those who choose an interface that leads there.
    host: str | None = None

    @abstractmethod
    def line(self) -> Line:
        """Return a new line, which connects with its first request."""

    @abstractmethod
    def ear(self) -> Ear:
        """Return a new ear."""


def insist(request: Callable[[float], _R], deadline: Deadline, what: str) -> _R:
    """Make a request that may be repeated, until there is an answer.

    Raises:
        DistNetworkError: There was none in time.
    """
    pause_s = _SHORTEST_PAUSE_S
    while True:
        heed()
        try:
            return request(min(max(deadline.remaining(), 0.001), _ANSWER_S))
        except LostError as error:
            if deadline.remaining() <= pause_s:
                why = f"{what} cannot be reached, tried for {deadline.timeout_s:.3g} s: {error}"
                raise DistNetworkError(why) from error.__cause__
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class Lines:
    """The lines and ears of one user, which threads borrow. Not for forked children."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._free: list[Line] = []
        self._ears: list[Ear] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextlib.contextmanager
    def line(self) -> Iterator[Line]:
        """Lend a line; one of which it is not known how far it has come is not lent again."""
        self._check_open()
        with self._lock:
            line = self._free.pop() if self._free else None
        line = line or self.server.line()
        try:
            yield line
        except BaseException as error:
            if line.is_open or not isinstance(error, DistStoreError):
                line.disconnect()
                line = None
            raise
        finally:
            if line is not None:
                self._give_back(line)

    @contextlib.contextmanager
    def ear(self) -> Iterator[Ear]:
        """Lend an ear."""
        self._check_open()
        with self._lock:
            ear = self._ears.pop() if self._ears else None
        ear = ear or self.server.ear()
        try:
            yield ear
        finally:
            with self._lock:
                if not self._closed and not self._ears:
                    self._ears.append(ear)
                    ear = None
            if ear is not None:
                ear.disconnect()

    def close(self) -> None:
        """Close what is not lent; the rest follows when it comes back."""
        with self._lock:
            self._closed = True
            idle: list[Line | Ear] = [*self._free, *self._ears]
            self._free, self._ears = [], []
        for each in idle:
            each.disconnect()

    def _give_back(self, line: Line) -> None:
        with self._lock:
            if not self._closed:
                self._free.append(line)
                return
        line.disconnect()

    def _check_open(self) -> None:
        if self._closed:
            raise DistStoreError(f"{self.server.name}: the store has been closed")
