"""`ServerStore`: what stores that lie on a server that somebody else runs have in common."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from rankwise.errors import DistError, DistStoreError, ForkedProcessError
from rankwise.stores import (
    Deadline,
    Missing,
    Operation,
    Series,
    Store,
    Timeout,
    heed,
    held,
    keep_standard,
    operations,
    shortened,
    to_amount,
)
from rankwise_network.secret import given_or_loaded
from rankwise_stores.line import Ear, Lines, LostError, Server, insist
from rankwise_stores.lives import Membership

_R = TypeVar("_R")
_P = ParamSpec("_P")

#: How many values one request asks for.
_AT_ONCE = 100
#: When to look again though nothing was heard: a lent item is free after a while, and a server may lose a message.
_LOOK_AGAIN_S = 1.0
#: How long to wait where the server cannot be listened to.
_DEAF_S = 0.05


class ServerStore(Store):
    """A store whose keys lie on a server under a prefix, as long as somebody uses them.

    Args:
        server: The server, and the prefix.
        rank: This rank; -1 for a user who is none.
        world_size: How many ranks use it; -1 for any number of users.
        timeout: How long to wait for the server, and, from then on, for keys: a `timedelta` or seconds.
        secret: The job secret, if it is not the one of the environment.
    """

    ends_with_its_users = True
    has_address = True

    def __init__(
        self, server: Server, rank: int, world_size: int, timeout: Timeout, secret: bytes | None = None
    ) -> None:
        with shortened:
            keep_standard()
            self.set_timeout(timeout)
            self.secret = given_or_loaded(secret, type(self).__name__)
            member = Membership(server, to_amount(rank), to_amount(world_size), Deadline(self._timeout_s))
            self._hold = _Hold(server, member)
            #: What each thread that waits listens with, and for which key.
            self._waits = threading.local()

    @property
    def host(self) -> str | None:
        """The server's host, None for a Unix socket."""
        return self._hold.server.host

    @property
    def identity(self) -> bytes:
        """What tells the life in which this store takes part from all others under the same prefix."""
        return self._hold.member.life.mark.encode()

    def peek(self, key: str) -> bytes | None:
        return self._run(operations.peek, self._timeout_s, key)

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        return self._run(operations.swap, self._timeout_s, key, expected, desired)

    def scan(self) -> Sequence[str]:
        return self._run(operations.scan, self._timeout_s)

    def clone(self) -> ServerStore:
        self._check_open(operations.check)
        twin = self.view(self._timeout_s)
        twin._hold = _Hold(self._hold.server, self._hold.member.share())
        return twin

    def close(self) -> None:
        super().close()
        self._hold.close()

    def _have_met(self) -> None:
        self._hold.member.have_met()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._hold.server.name!r})"

    # ------------------------------------------------------------------ how operations run

    def _run(self, operation: Operation[_P, _R], limit_s: float, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        self._check_open(operation)
        listed = _LISTED[operation](*args) if operation in _LISTED else ()
        found = operation(_Look(self._hold, Deadline(limit_s), listed), *args, **kwargs)
        if isinstance(found, Missing):
            self._waits.key = found.key
        return found

    def _await(
        self, operation: Operation[_P, _R | Missing], timeout_s: float, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        self._check_open(operation)
        with self._hold.lines.ear() as self._waits.ear:
            return super()._await(operation, timeout_s, *args, **kwargs)

    def _pause(self, pause_s: float, remaining_s: float) -> None:
        """Wait for a change of the key that the last look has missed; listen for it first, so that none is missed."""
        ear: Ear = self._waits.ear
        deadline = Deadline(min(remaining_s, _LOOK_AGAIN_S))
        try:
            if ear.key != self._waits.key:
                heed()
                ear.listen(self._hold.member.life.mark, self._waits.key, max(deadline.remaining(), 0.01))
                return
            while not deadline.expired():
                heed()
                if ear.wait(min(deadline.remaining(), held.patience_s)):
                    return
        except (LostError, DistStoreError):  # what is wrong the next look will tell
            ear.disconnect()
            time.sleep(min(_DEAF_S, deadline.remaining()))

    def _check_open(self, operation: Callable[..., Any]) -> None:
        if self._hold.pid != os.getpid():
            raise ForkedProcessError(
                f"{operations.title(operation)} on {self!r}: this process was forked from the one that opened the "
                "store; open it anew here"
            )
        super()._check_open(operation)


class _Hold:
    """What a store and its views hold: a seat, and lines."""

    def __init__(self, server: Server, member: Membership) -> None:
        self.server, self.member, self.pid = server, member, os.getpid()
        self.lines = Lines(server)
        self._finalizer = weakref.finalize(self, _let_go, self.lines, member, self.pid)

    def close(self) -> None:
        """Let go; again does nothing."""
        self._finalizer()

    def read(self, keys: Sequence[str], deadline: Deadline) -> list[bytes | None]:
        """Return what is under some keys."""
        with self.lines.line() as line:
            return insist(lambda s: line.read(self.member.life.mark, keys, s), deadline, self.server.name)

    def names(self, deadline: Deadline) -> list[str]:
        """Return all keys."""
        with self.lines.line() as line:
            return insist(lambda s: line.names(self.member.life.mark, s), deadline, self.server.name)

    def swap(self, key: str, expected: bytes | None, desired: bytes | None, deadline: Deadline) -> bytes | None:
        """Replace a value if it is the expected one; carried out once, whatever becomes of the connection."""
        life = self.member.life

        def once(within_s: float) -> bytes | None:
            line.is_open = True
            try:
                found, lost = line.swap(life, key, expected, desired, within_s), None
            except LostError as error:
                found, lost = expected, error
            except DistStoreError:  # an answer too
                line.is_open = False
                raise
            carried_out = lost is None or insist(lambda s: line.settle(life, s), deadline, self.server.name)
            line.is_open = False
            if not carried_out and lost is not None:
                raise lost  # it never will be: so it can be tried again
            return found

        with self.lines.line() as line:
            return insist(once, deadline, self.server.name)


def _let_go(lines: Lines, member: Membership, pid: int) -> None:
    """Leave; in a forked child, let the parent do it."""
    if pid == os.getpid():
        lines.close()
        with contextlib.suppress(DistError):
            member.leave()


class _Look:
    """The three primitives for one operation: those of many keys are read many at a time."""

    def __init__(self, hold: _Hold, deadline: Deadline, listed: Sequence[str]) -> None:
        self._hold, self._deadline = hold, deadline
        self._listed, self._place, self._scans = listed, 0, False
        self._known: dict[str, bytes | None] = {}

    def peek(self, key: str) -> bytes | None:
        """Return the value stored now; None if there is none."""
        if key not in self._known:
            keys = self._batch(key)
            self._known.update(zip(keys, self._hold.read(keys, self._deadline), strict=True))
        return self._known.pop(key)

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        """Replace the value if it is the expected one; return what was found."""
        if not self._scans:
            self._known.clear()  # what is looked at after a change is to be newer
        return self._hold.swap(key, expected, desired, self._deadline)

    def scan(self) -> Sequence[str]:
        """Return all keys."""
        # Who scans goes on to change what is there, for which an older value will do: swap tells the newer one.
        self._listed, self._place, self._scans = self._hold.names(self._deadline), 0, True
        return self._listed

    def _batch(self, key: str) -> list[str]:
        """Return a key, and those that will be asked for next if it is one of a list."""
        for place in (*range(self._place, len(self._listed)), *range(self._place)):
            if self._listed[place] == key:
                self._place = place + 1
                return list(dict.fromkeys(self._listed[place : place + _AT_ONCE]))
        return [key]


#: For operations that read many keys one after the other, which these are.
_LISTED: dict[Callable[..., Any], Callable[..., Sequence[str]]] = {
    operations.arrive: lambda *args: Series(*args[-2:]),
    operations.arrived: lambda *args: Series(*args[-2:]),
    operations.check: lambda keys: keys,
    operations.multi_get: lambda keys, begin=0: keys,
    operations.set_and_peek: lambda keys, values, wanted: wanted,
    operations.wait: lambda keys, begin=0: keys,
}
