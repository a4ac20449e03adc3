"""What every kind of store can do by itself, and what all operations are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["Missing", "Primitives", "change"]


class Primitives(Protocol):
    """What every kind of store can do by itself."""

    def peek(self, key: str) -> bytes | None:
        """Return the value stored now; None if there is none."""

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        """Replace the value if it is the expected one; return what was found."""

    def scan(self) -> Sequence[str]:
        """Return all keys."""


class Missing(NamedTuple):
    """There is nothing to return yet; look again when this key has changed.

    An operation that has begun goes on with another one then.
    """

    key: str
    operation: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()


def change(store: Primitives, key: str, new: Callable[[bytes | None], bytes | None]) -> bytes | None:
    """Replace the value by one made from it, and return the old one."""
    found = store.peek(key)
    while True:
        seen = store.swap(key, found, new(found))
        if seen == found:
            return found
        found = seen
