"""What tests on threads share: worlds and calls on threads, and what must not take long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial, wraps
from typing import Any

import pytest

from rankwise.errors import DistTimeoutError
from rankwise_local import local_world


def run_local(size: int, program: Callable[..., Any], *args: Any, **world: Any) -> list[Any]:
    """Return what each rank of a world of threads returns of a program."""
    with local_world(size, **world) as ranks:
        return ranks.run(program, *args)


def on_ranks(size: int, **world: Any) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Have each rank of a world of threads do what a test does."""

    def decorate(program: Callable[..., object]) -> Callable[..., None]:
        @wraps(program)
        def test(**arguments: Any) -> None:
            run_local(size, partial(program, **arguments), **world)

        return test

    return decorate


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


def ends_in_time(
    call: Callable[[], object],
    limit_s: float,
    error: Any = DistTimeoutError,
    words: str | None = None,
    at_least_s: float = 0.0,
) -> bool:
    """Tell whether a call that fails takes no longer than this; as the machine may be busy, one of three has to."""
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(error, match=words):
            call()
        took_s = time.monotonic() - began
        assert took_s >= at_least_s
        if took_s < limit_s:
            return True
    return False


@contextmanager
def none_left(within_s: float) -> Iterator[None]:
    """Show that all threads end that begin meanwhile: one may still have a last word to say."""
    before, end = set(threading.enumerate()), time.monotonic() + within_s
    yield
    begun = set(threading.enumerate()) - before
    for thread in begun:
        thread.join(max(0.0, end - time.monotonic()))
    assert not [thread for thread in begun if thread.is_alive()]


def soon(call: Callable[..., object], *args: object) -> None:
    """Call when the next to come is probably waiting; it does not matter if not."""
    threading.Timer(0.05, call, args).start()
