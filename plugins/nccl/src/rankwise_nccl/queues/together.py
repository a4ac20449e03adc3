"""Blocking calls of NCCL that may wait for each other, all at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from rankwise.backends import Deadline, start_thread


def together(calls: Iterable[tuple[str, Callable[[], object]]], timeout_s: float | None = None) -> list[str]:
    """Make calls on a thread each, and return the names of those that took too long.

    They are for ends: what goes wrong in one is not told, and an end that takes too long is left to a thread that ends
    with the process.

    Args:
        calls: Names and calls.
        timeout_s: How long to wait for all of them; None is for as long as it takes.
    """
    threads = [threading.Thread(target=_quietly, args=(call,), name=name, daemon=True) for name, call in calls]
    for thread in threads:
        start_thread(thread)
    deadline = None if timeout_s is None else Deadline(timeout_s)
    for thread in threads:
        thread.join(None if deadline is None else deadline.remaining())
    return [thread.name for thread in threads if thread.is_alive()]


def _quietly(call: Callable[[], object]) -> None:
    with suppress(Exception):
        call()
