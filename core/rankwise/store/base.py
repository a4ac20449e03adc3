"""`Store`: the operations that every kind has, with the same behaviour on each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

from rankwise.deadline import Deadline, Timeout, seconds
from rankwise.errors import DistStoreError, DistTimeoutError
from rankwise.store.table import HIDDEN, MAX_KEY, MAX_VALUE, Wait

__all__ = ["DEFAULT_TIMEOUT_S", "Store"]

DEFAULT_TIMEOUT_S = 300.0


class Store(ABC):
    """Keys are strings, values bytes; a string given as a value is stored as UTF-8.

    A kind of store implements `_call`. For one over a foreign key-value service, which can read and swap single
    values, derive from `rankwise.store.swap.SwapStore` instead.
    """

    def __init__(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> None:
        self._timeout_s = seconds(timeout)

    @abstractmethod
    def _call(self, op: str, *args: Any, timeout_s: float = 0.0) -> Any:
        """Do one operation of `rankwise.store.table.Table`, waiting up to `timeout_s` if it must.

        Raises:
            Wait: What it needs is not there.
        """

    # ------------------------------------------------------------------ single keys

    def set(self, key: str, value: str | bytes) -> None:
        """Store a value."""
        self._call("set", _key(key), _value(value))

    def get(self, key: str, *, timeout: Timeout | None = None) -> bytes:
        """Return a value, waiting until there is one.

        Raises:
            DistTimeoutError: There is none within the time-out; the message names the key.
        """
        found: bytes = self._waiting([key], timeout, lambda left: self._call("get", _key(key), timeout_s=left))
        return found

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which begins at 0, and return its new value; it is stored as a decimal number."""
        total: int = self._call("add", _key(key), int(amount))
        return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Replace a value if it is the expected one, and return what is stored afterwards.

        An `expected` that is empty means that the key must not exist. If it is not empty and the key does not
        exist, nothing is stored and the answer is empty.
        """
        stored: bytes = self._call("compare_set", _key(key), _value(expected), _value(desired))
        return stored

    def append(self, key: str, value: str | bytes) -> None:
        """Put bytes behind a value, which begins empty."""
        self._call("append", _key(key), _value(value))

    def delete_key(self, key: str) -> bool:
        """Delete a key, and tell whether it was there."""
        gone: bool = self._call("delete_key", _key(key))
        return gone

    # ------------------------------------------------------------------ several keys

    def check(self, keys: Sequence[str]) -> bool:
        """Tell whether all keys are there, without waiting."""
        there: bool = self._call("check", _keys(keys))
        return there

    def wait(self, keys: Sequence[str], timeout: Timeout | None = None) -> None:
        """Wait until all keys are there.

        Raises:
            DistTimeoutError: They are not, within the time-out.
        """
        self._waiting(keys, timeout, lambda left: self._call("wait", _keys(keys), timeout_s=left))

    def multi_get(self, keys: Sequence[str], *, timeout: Timeout | None = None) -> list[bytes]:
        """Return the values of several keys, waiting until all are there."""
        found: list[bytes] = self._waiting(
            keys, timeout, lambda left: self._call("multi_get", _keys(keys), timeout_s=left)
        )
        return found

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Store several values."""
        if len(keys) != len(values):
            raise ValueError(f"multi_set got {len(keys)} keys for {len(values)} values")
        self._call("multi_set", _keys(keys), [_value(value) for value in values])

    def num_keys(self) -> int:
        """Return the number of keys that were stored by users."""
        return len(self.list_keys())

    def list_keys(self) -> list[str]:
        """Return the keys that were stored by users, sorted."""
        listed: list[str] = self._call("list_keys", "")
        return listed

    # ------------------------------------------------------------------ queues

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put a value at the end of a queue. Queues have names of their own, apart from the keys."""
        self._call("queue_push", _key(key), _value(value))

    def queue_pop(self, key: str, block: bool = True, *, timeout: Timeout | None = None) -> bytes:
        """Take the value at the head of a queue.

        Raises:
            QueueEmptyError: There is none and `block` is false.
            DistTimeoutError: There is none within the time-out.
        """
        if not block:
            first: bytes = self._call("queue_try_pop", _key(key))
            return first
        popped: bytes = self._waiting(
            [key], timeout, lambda left: self._call("queue_pop", _key(key), timeout_s=left)
        )
        return popped

    def queue_len(self, key: str) -> int:
        """Return the number of values in a queue."""
        length: int = self._call("queue_len", _key(key))
        return length

    # ------------------------------------------------------------------ the store itself

    @property
    def timeout(self) -> timedelta:
        """How long `get`, `wait` and `queue_pop` wait unless told otherwise."""
        return timedelta(seconds=self._timeout_s)

    def set_timeout(self, timeout: Timeout) -> None:
        """Change how long `get`, `wait` and `queue_pop` wait unless told otherwise."""
        self._timeout_s = seconds(timeout)

    def barrier(self, key: str, world_size: int, timeout: Timeout | None = None) -> None:
        """Return once `world_size` users have called with this key; it may be used again and again.

        Raises:
            DistTimeoutError: They have not, within the time-out; the message says how many have.
        """
        deadline = Deadline(self._timeout_s if timeout is None else seconds(timeout))
        come = self.add(f"{HIDDEN}barrier/{key}/come", 1)
        turn = (come - 1) // world_size
        door = f"{HIDDEN}barrier/{key}/{turn}"
        if come == (turn + 1) * world_size:
            self.set(door, b"")
            self.delete_key(f"{HIDDEN}barrier/{key}/{turn - 1}")
        try:
            self.wait([door], deadline.remaining())
        except DistTimeoutError as error:
            there = self.add(f"{HIDDEN}barrier/{key}/come", 0) - turn * world_size
            raise DistTimeoutError(
                f"store barrier {key!r}: {there} of {world_size} came within {deadline.timeout_s:g} s"
            ) from error

    def clone(self) -> Store:
        """Return a store on the same data that can be used and closed apart from this one."""
        return self

    def has_extended_api(self) -> bool:
        """Say that append, multi_get, multi_set and the queues are there: they are on every kind."""
        return True

    def close(self) -> None:  # noqa: B027 - a store that holds nothing has nothing to do
        """Give back what this object holds; it cannot be used afterwards."""

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _waiting(self, keys: Sequence[str], timeout: Timeout | None, call: Callable[[float], Any]) -> Any:
        timeout_s = self._timeout_s if timeout is None else seconds(timeout)
        try:
            return call(timeout_s)
        except Wait as error:
            few = ", ".join(map(repr, keys[:8])) + (" ..." if len(keys) > 8 else "")
            raise DistTimeoutError(f"{self!r} has no {few} after {timeout_s:g} s") from error


def _key(key: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a store's key must be a string, not {key!r}")
    if len(key) > MAX_KEY:
        raise DistStoreError(f"a store's key has {len(key)} characters, more than {MAX_KEY}")
    return key


def _keys(keys: Sequence[str]) -> list[str]:
    if isinstance(keys, str):
        raise TypeError(f"keys must be a list of strings, not the string {keys!r}")
    return [_key(key) for key in keys]


def _value(value: str | bytes) -> bytes:
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    elif not isinstance(value, bytes):
        raise TypeError(f"a store's value must be bytes or a string, not {type(value).__name__}")
    if len(value) > MAX_VALUE:
        raise DistStoreError(f"a store's value has {len(value)} bytes, more than {MAX_VALUE}")
    return value
