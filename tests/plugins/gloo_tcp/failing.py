"""How calls end that are to fail, and what is logged meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rankwise.errors import DistError

#: The kind and the text of an error, and how long the call took that has ended with it.
Heard = tuple[str, str, float]


def error_of(call: Callable[[], object]) -> BaseException | None:
    """Return the error that a call ends with, if it ends with one of rankwise's or an interrupt."""
    try:
        call()
    except (DistError, KeyboardInterrupt) as error:
        return error
    return None


def end_of(call: Callable[[], object]) -> str:
    """Return the name of that error, or "done"."""
    error = error_of(call)
    return "done" if error is None else type(error).__name__


def heard(call: Callable[..., object], *args: object, **terms: object) -> Heard:
    """Return what a call says that is to fail."""
    began = time.monotonic()
    error = error_of(lambda: call(*args, **terms))
    assert error is not None, "nothing was raised"
    return type(error).__name__, str(error), time.monotonic() - began


def all_hear(found: Iterable[Heard | None], kind: str, *words: str, within_s: float) -> None:
    """Check that all ranks have heard of an error of this kind, in these words, in time."""
    for told in found:
        assert told is not None
        assert told[0] == kind, told
        assert all(word in told[1] for word in words), told
        assert told[2] < within_s, told


@contextmanager
def logged() -> Iterator[list[str]]:
    """Make a list of what the logger says."""
    said: list[str] = []
    logger, handler = logging.getLogger("rankwise"), logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
