"""How a process has ended, as Linux tells it of one that is not a child, and why this one ends."""

from __future__ import annotations

import os
import signal
import struct
import sys
from contextlib import suppress

__all__ = ["process_ending", "in_a_line", "last_words", "process_stat"]

#: From Linux 6.15 on a descriptor tells the exit status even after the parent has taken it.
_PIDFD_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_WITH_EXIT = 1 << 3
#: More than the system tells of a process.
_STAT_NBYTES = 4096
#: How long an exception may be in the words of others.
_MOST = 300


def process_ending(descriptor: int, pid: int) -> str:
    """Say how a process ended, of which a descriptor says that it has."""
    status = _reaped_status(descriptor)
    if status is None:
        fields = process_stat(pid)  # until its parent has asked, the status is there
        status = int(fields[-1]) if fields[:1] == ["Z"] else _reaped_status(descriptor)
    if status is None:
        return "its process has ended"
    number = status & 0x7F
    if not number:
        return f"its process has ended with exit code {status >> 8 & 0xFF}"
    with suppress(ValueError):
        return f"its process was killed by {signal.Signals(number).name}"
    return f"its process was killed by signal {number}"


def _reaped_status(descriptor: int) -> int | None:
    import fcntl  # where there are such descriptors

    info = bytearray(64)
    struct.pack_into("=Q", info, 0, _WITH_EXIT)
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    known, code = struct.unpack_from("=Q", info)[0], struct.unpack_from("=i", info, 60)[0]
    return code if known & _WITH_EXIT else None


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
