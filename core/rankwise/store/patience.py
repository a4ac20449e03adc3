"""Waits for the store in which the waiter looks around now and then, since what it waits for may never come."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from rankwise.basics.deadline import Deadline
from rankwise.errors import DistTimeoutError
from rankwise.store.base import GRACE_S

__all__ = ["patiently"]

_T = TypeVar("_T")

#: How long the first wait is, then the next ones, and at the most where the answer to a shorter one comes too late.
_FIRST_S, _NEXT_S, _LONGEST_S = 0.25, 0.5, 4.0


def patiently(wait: Callable[[float], _T], deadline: Deadline, look: Callable[[], object]) -> _T:
    """Return what `wait` does, which gets the seconds that it may take; call `look` after each wait in vain.

    Raises:
        DistTimeoutError: The deadline has passed.
    """
    slice_s = _FIRST_S
    while True:
        answer_at = monotonic() + slice_s + GRACE_S
        try:
            return wait(min(slice_s, deadline.remaining()))
        except DistTimeoutError:
            slice_s = min(2 * slice_s, _LONGEST_S) if monotonic() >= answer_at else max(slice_s, _NEXT_S)
            look()
            if deadline.expired():
                raise
