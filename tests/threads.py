"""What tests on threads share: worlds and calls on threads, and what must not take long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

from rankwise.testing import local_world

__all__ = ["at_once", "run_local", "within"]


def run_local(size: int, program: Callable[..., Any], *args: Any, **world: Any) -> list[Any]:
    """Return what each rank of a world of threads returns of a program."""
    with local_world(size, **world) as ranks:
        return ranks.run(program, *args)


def at_once(function: Callable[[Any], Any], arguments: Any, within_s: float) -> list[Any]:
    """Return what a function returns for each argument, on as many threads, which must end soon."""
    outcomes: list[Future[Any]] = []
    threads = []
    for argument in arguments:
        outcomes.append(Future())
        run = partial(copy_context().run, _into, outcomes[-1], function, argument)
        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
    end = time.monotonic() + within_s
    for thread in threads:
        thread.join(end - time.monotonic())
    return [outcome.result(0) for outcome in outcomes]


def _into(outcome: Future[Any], function: Callable[[Any], Any], argument: Any) -> None:
    try:
        outcome.set_result(function(argument))
    except BaseException as error:
        outcome.set_exception(error)


@contextmanager
def within(limit_s: float, at_least_s: float = 0.0) -> Iterator[None]:
    """Fail where something takes longer than this, or not even so long, if it does not fail by itself."""
    began = time.monotonic()
    yield
    took_s = time.monotonic() - began
    assert at_least_s <= took_s < limit_s, f"took {took_s:.2f} s"
