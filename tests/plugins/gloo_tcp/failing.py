"""How calls end that are to fail."""

from __future__ import annotations

from collections.abc import Callable

from rankwise.errors import DistError

__all__ = ["end_of", "error_of"]


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
