"""All the ways of waiting for a work."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any


def wait(work: Any, roll: Random, timeout_s: float) -> None:
    """Wait for a work in a way that `roll` chooses."""
    roll.choice(_WAYS)(work, timeout_s)


def _plainly(work: Any, timeout_s: float) -> None:
    work.wait()


def _for_a_time(work: Any, timeout_s: float) -> None:
    work.wait(timeout_s)


def _for_its_result(work: Any, timeout_s: float) -> None:
    work.result()


def _for_its_future(work: Any, timeout_s: float) -> None:
    work.get_future().result(2 * timeout_s)


def _in_asyncio(work: Any, timeout_s: float) -> None:
    async def awaited() -> None:
        await work

    asyncio.run(awaited())


def _by_looking(work: Any, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while not work.is_completed() and time.monotonic() < until:
        time.sleep(0.0005)
    work.wait()


def _by_callback(work: Any, timeout_s: float) -> None:
    called = threading.Event()
    work.add_done_callback(lambda _: called.set())
    work.wait()
    assert called.wait(timeout_s), "the callback was not called"


_WAYS: tuple[Callable[[Any, float], None], ...] = (
    *(_plainly, _plainly, _for_a_time, _for_its_result),
    *(_for_its_future, _in_asyncio, _by_looking, _by_callback),
)
