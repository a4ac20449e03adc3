"""Time-outs as users give them, and deadlines as waits need them."""

from __future__ import annotations

import math
from datetime import timedelta
from time import monotonic

from rankwise.basics.arguments import shown

Timeout = float | timedelta

#: No lock waits and no `timedelta` lasts longer than some centuries, so an infinite time-out is one of decades.
_FOREVER_S = 1e9


def seconds(timeout: Timeout, name: str = "timeout") -> float:
    """Return a time-out, which the caller calls `name`, in seconds.

    Raises:
        TypeError: It is neither a number nor a `timedelta`.
        ValueError: It is negative, or nan.
    """
    if isinstance(timeout, timedelta):
        value = timeout.total_seconds()
    elif isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"{name} must be a datetime.timedelta or a number of seconds, not {shown(timeout)}")
    else:
        value = float(timeout)
    if math.isnan(value):
        raise ValueError(f"{name} must be a number of seconds, not nan")
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {timeout!r}")
    return min(value, _FOREVER_S)


class Deadline:
    """A moment that one operation, with all its waits, must not outlast.

    Attributes:
        timeout_s: How long it may take.
        at_s: The moment, by the monotonic clock.
    """

    __slots__ = ("at_s", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.at_s = monotonic() + timeout_s

    def __repr__(self) -> str:
        return f"<Deadline: {self.remaining():.3g} s left of {self.timeout_s:g}>"

    def remaining(self) -> float:
        """Return the seconds that are left, never less than zero."""
        return max(0.0, self.at_s - monotonic())

    def overdue_s(self) -> float:
        """Return by how much the moment has passed; less than zero before."""
        return monotonic() - self.at_s

    def expired(self) -> bool:
        """Tell whether the moment has passed."""
        return monotonic() >= self.at_s
