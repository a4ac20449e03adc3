"""Notices that a process is about to be ended, as a scheduler or a cloud gives them: it leaves at the next commit."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

#: EX_TEMPFAIL: what was to be done is not done, and nothing is wrong.
LEFT = 75

#: The same signal so soon after the first is the same notice: a scheduler sends it to each process of a job, and the
#: launcher passes on what it has got itself.
_SAME_NOTICE_S = 1.0

#: When this process will be ended, once it has been told; infinity before.
_end_at = float("inf")
_told: list[Callable[[float], object]] = []


class Left(SystemExit):
    """Raised by a function of `elastic.run` on a rank that has left after a notice.

    The others go on without the rank. As a `SystemExit` it ends the process, unless it is caught: with status 75, by
    which `rankwise run --elastic` sees that the rank neither has failed nor is at the end of its work.
    """

    def __init__(self) -> None:
        super().__init__(LEFT)


def expect_notice(number: int = signal.SIGTERM, grace_s: float = 30.0) -> None:
    """Take a signal for the notice that this process will be ended.

    The rank then leaves at the next `State.commit`: that commit still counts, and the others go on without losing a
    step. Call this in the main thread. A second signal does what it did before, unless it comes within a second: some
    schedulers send a notice to each process of a job, and so does the launcher that has got it too.

    Args:
        number: The signal: SIGTERM, or what a scheduler was told to send, as with Slurm's `--signal=USR1@120`.
        grace_s: How long after the signal the process will be ended.

    Raises:
        ValueError: This is not the main thread.

    Examples:
        >>> dist.elastic.expect_notice(signal.SIGTERM, grace_s=30)
    """
    before = signal.getsignal(number)
    first_at = float("inf")

    def noticed(signal_number: int, frame: Any) -> None:
        nonlocal first_at
        if time.monotonic() > first_at + _SAME_NOTICE_S:
            signal.signal(number, before)
            signal.raise_signal(number)
        elif first_at == float("inf"):
            first_at = time.monotonic()
            notice(grace_s)

    signal.signal(number, noticed)


def on_notice(function: Callable[[float], object]) -> None:
    """Have a function called with the seconds that are left, when a notice comes; immediately if one has come.

    A thread of its own calls it, so it may write something to a disk.

    Args:
        function: What is called.

    Examples:
        >>> dist.elastic.on_notice(lambda seconds: print(f"{seconds:.0f} s are left"))
    """
    _told.append(function)
    if leaving():
        _tell(function)


def leaving() -> bool:
    """Return whether this process has been told that it will be ended.

    Examples:
        >>> dist.elastic.leaving()
        False
    """
    return _end_at != float("inf")


def seconds_left() -> float:
    """Return how long this process has until it will be ended; infinity if it has not been told.

    Examples:
        >>> dist.elastic.seconds_left()
        inf
    """
    return max(0.0, _end_at - time.monotonic())


def notice(grace_s: float) -> None:
    """Note that this process will be ended."""
    global _end_at
    is_first, _end_at = not leaving(), min(_end_at, time.monotonic() + grace_s)
    for function in list(_told) if is_first else ():
        _tell(function)


def _tell(function: Callable[[float], object]) -> None:
    threading.Thread(target=function, args=(seconds_left(),), name="rankwise notice", daemon=True).start()
