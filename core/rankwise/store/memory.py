"""`HashStore`: a store for the threads of one process, and the table that other kinds keep too."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from rankwise.errors import ForkedProcessError
from rankwise.store import operations
from rankwise.store.base import Operation, TableStore
from rankwise.store.primitives import Missing

_R = TypeVar("_R")
_P = ParamSpec("_P")

#: How many of the last items that have left their queues are known.
_REMEMBERED = 1024


class Confirmed:
    """The tokens of the last items that have left their queues: such an item can still be given back."""

    def __init__(self) -> None:
        self._tokens: dict[bytes, None] = {}

    def add(self, token: bytes) -> None:
        """Note a token."""
        self._tokens[token] = None
        if len(self._tokens) > _REMEMBERED:
            del self._tokens[next(iter(self._tokens))]

    def discard(self, token: bytes) -> bool:
        """Forget a token; tell whether it was there."""
        return self._tokens.pop(token, self) is None


class Table:
    """Keys and values in memory, and which of them have changed. One thread at a time."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        #: The keys that have changed since the thread that looks here has emptied it.
        self.changed: set[str] = set()
        #: How many who wanted to use the table were refused for their job secret.
        self.refused = 0
        #: The items that have just left their queues.
        self.confirmed = Confirmed()

    def peek(self, key: str) -> bytes | None:
        """Return the value stored now; None if there is none."""
        return self.values.get(key)

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        """Replace the value if it is the expected one; return what was found."""
        found = self.values.get(key)
        if found == expected != desired:
            self.changed.add(key)
            if desired is None:
                del self.values[key]
            else:
                self.values[key] = desired
        return found

    def scan(self) -> Sequence[str]:
        """Return all keys."""
        return list(self.values)


class HashStore(TableStore):
    """A store that the threads of one process share by sharing the object, or clones of it.

    Examples:
        >>> store = dist.HashStore()
        >>> store.set("key", "value")
        >>> store.get("key")
        b'value'
    """

    def __init__(self) -> None:
        self._table = Table()
        #: Entered itself, see `issue_order`; nothing is returned from a call under it, or an interrupt leaves it held.
        self._lock = threading.RLock()
        #: What wakes each thread that waits. A condition would be left half-way by an interrupt.
        self._bells: dict[int, threading.Lock] = {}
        self._pid = os.getpid()

    def close(self) -> None:
        if not self._closed:
            super().close()
            if self._pid == os.getpid():
                with self._lock:
                    self._ring()

    def _run(self, operation: Operation[_P, _R], limit_s: float, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        self._check_open(operation)
        with self._lock:
            try:
                found = operation(self._table, *args, **kwargs)
            finally:
                if self._table.changed:
                    self._table.changed.clear()
                    self._ring()
        return found

    def _await(
        self, operation: Operation[_P, _R | Missing], timeout_s: float, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        self._check_open(operation)
        # Hung up before the first look, so that no change between that and the wait is missed.
        bell = self._bells[threading.get_ident()] = threading.Lock()
        bell.acquire()
        try:
            return super()._await(operation, timeout_s, *args, **kwargs)
        finally:
            self._bells.pop(threading.get_ident(), None)

    def _pause(self, pause_s: float, remaining_s: float) -> None:
        self._bells[threading.get_ident()].acquire(timeout=remaining_s)

    def _ring(self) -> None:
        """Have all who wait look; the lock is held."""
        for bell in list(self._bells.values()):
            if bell.locked():
                bell.release()

    def _check_open(self, operation: Callable[..., Any]) -> None:
        if self._pid != os.getpid():
            raise ForkedProcessError(
                f"{operations.title(operation)} on {self!r}: this process was forked from the one that shares the "
                "store among its threads; use a FileStore or a TCPStore between processes"
            )
        super()._check_open(operation)
