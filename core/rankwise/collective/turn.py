"""Whose turn it is on a group, compiled where that is installed: then it takes neither a lock nor a call."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from rankwise.basics import native

__all__ = ["Turn", "make_turn"]


class Turn(Protocol):
    """The turn to make a collective.

    Attributes:
        holder: What stands for the call that has the turn; None if no call has it. The call that has it gives it back
            by setting this to None, without a call, as what a signal handler raises at the beginning of one would leave
            the turn taken for good. Then the watchers must be told.
        queued: How many operations wait for it in the line; while there are any, it goes to the first of them alone.
        watchers: How many threads wait for a change. To tell nobody costs as much as half a small collective.
        closed: Whether the group has failed or ended, so that nobody takes the turn any more.
    """

    holder: Any
    queued: int
    watchers: int
    closed: bool

    def take(self, holder: object, /) -> bool:
        """Take the turn if nobody has it or is before; tell whether it is the holder's now."""


def make_turn(lock: AbstractContextManager[Any]) -> Turn:
    """Return a turn that nobody has; the lock is that of the line."""
    compiled = native.module()
    if compiled is None:
        return _Turn(lock)
    made: Turn = compiled.Turn()
    return made


class _Turn:
    __slots__ = ("_lock", "closed", "holder", "queued", "watchers")

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self.holder: Any = None
        self.queued = self.watchers = 0
        self.closed = False

    def take(self, holder: object, /) -> bool:
        with self._lock:
            if self.holder is not None or self.queued or self.closed:
                return False
            self.holder = holder
        return True
