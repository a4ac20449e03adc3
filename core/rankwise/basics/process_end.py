"""What the system tells of a process, and why this one ends."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

#: More than the system tells of a process.
_STAT_NBYTES = 4096
#: How long an exception may be in the words of others.
_MOST = 300


def process_stat(pid: int) -> list[str]:
    """Return what the system tells of a process, from its state on."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)  # half the time of a file of Python's
        try:
            return os.read(descriptor, _STAT_NBYTES).decode(errors="replace").rpartition(")")[2].split()
        finally:
            os.close(descriptor)
    except OSError:
        return []


def last_words() -> str:
    """Say by which exception this process ends; nothing if by none.

    The interpreter has told of it, or it is on its way through `multiprocessing`, or has become an exit on that way.
    """
    if hasattr(sys, "ps1"):  # typed in: the session went on after it
        return ""
    error = getattr(sys, "last_value", None) or sys.exc_info()[1]
    if isinstance(error, SystemExit):
        error = error.__context__ if error.code else None
    return in_a_line(error) if isinstance(error, BaseException) else ""


def in_a_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of what it says."""
    lines = [""]
    with suppress(Exception):  # whatever a program's exception does when it is asked
        lines = str(error).strip().splitlines() or lines
    text = f"{type(error).__name__}: {lines[0]}".removesuffix(": ")
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
