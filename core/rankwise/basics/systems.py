"""What Linux and the interpreter have and others may lack, in a form that serves on all, and what refusals mean."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal

__all__ = [
    "after_fork",
    "blake2b",
    "boot_of_macos",
    "cause",
    "descriptor_limit",
    "in_a_line",
    "keep_standard",
    "last_words",
    "process_stat",
    "require_ours",
    "shortage",
    "signals",
]


def signals(*names: str) -> tuple[signal.Signals, ...]:
    """Return those signals of these names that this system has."""
    import signal

    return tuple(signal.Signals[name] for name in names if name in signal.Signals.__members__)


def after_fork(act: Callable[[], object]) -> None:
    """Have something done in every forked child, where processes can fork at all."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


def boot_of_macos() -> str:
    """Return what tells one life of a Mac from all others, by which its processes know that they share it; else ""."""
    import platform

    if platform.system() != "Darwin":
        return ""
    import ctypes

    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    try:
        sysctl = ctypes.CDLL(None).sysctlbyname
        failed = sysctl(b"kern.bootsessionuuid", text, ctypes.byref(size), None, ctypes.c_size_t(0))
    except (AttributeError, OSError, TypeError):
        return ""
    return "" if failed else text.value.decode(errors="replace")


def keep_standard() -> None:
    """Open the null device at each of the descriptors 0, 1 and 2 that is closed.

    Else the next socket, pipe or shared memory would be opened there, and what anybody prints, or hands to a child
    process as its standard input, would be that. All that opens descriptors, ours and libraries', comes after this.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            found = os.open(os.devnull, os.O_RDWR)
            if found != descriptor:  # another thread was faster
                os.close(found)
                continue
            os.set_inheritable(found, True)


# BLAKE2b, the one hash that is used here, as `hashlib` has it
#
# `hashlib` itself would load OpenSSL for its other functions: 4 ms and 4 MiB of every rank, for nothing.

try:
    from _blake2 import blake2b
except ImportError:  # an interpreter that was built without it, and leaves it to OpenSSL
    from hashlib import blake2b


# What the operating system's refusals mean, in words that name the remedy


def cause(error: BaseException) -> str:
    """Return why the system has refused something: an `OSError`, or another error with an `errno`, as ZeroMQ's."""
    number = getattr(error, "errno", None)
    if number in (errno.EMFILE, errno.ENFILE):
        whose = f"this process has no free file descriptor ({descriptor_limit()})"
        return whose if number == errno.EMFILE else "this machine has no free file descriptor (sysctl fs.file-max)"
    if number == errno.EFBIG:
        return f"a file or shared memory would be larger than this process may make it ({_file_limit()})"
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "no thread can be started: this user or its control group has as many as it may (`ulimit -u`, pids.max)"
    if number == errno.ENOSPC:
        return "the disk is full (No space left on device)"
    return getattr(error, "strerror", None) or (os.strerror(number) if number else str(error))


def shortage() -> OSError | None:
    """Return why no file can be opened, if none can: what lies between us and the system may put it in any words."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error
    return None


def descriptor_limit() -> str:
    """Say how many file descriptors this process may have, and how to get more."""
    try:
        import resource
    except ImportError:  # Windows
        return "close files or sockets that are not needed"
    return f"its limit is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}; raise it with `ulimit -n`"


def _file_limit() -> str:
    """Say how large a file may be, and how to allow more."""
    import resource

    return f"its limit is {resource.getrlimit(resource.RLIMIT_FSIZE)[0]} bytes; raise it with `ulimit -f`"


# What the system tells of a process, and why this one ends

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


# The interpreter that rankwise can be loaded into: the main one of its process, with Python's global lock

_OTHER = (
    "rankwise cannot be loaded into a sub-interpreter, as NumPy cannot. Start ranks as processes (`rankwise run`, "
    "`rankwise.spawn`) or as threads of the main interpreter (`rankwise_local.local_world`); for mod_wsgi set "
    "`WSGIApplicationGroup %{GLOBAL}`"
)
_UNLOCKED = (
    "rankwise needs Python's global lock (GIL), which is off in this free-threaded Python. Turn it on: "
    "set PYTHON_GIL=1, or start `python -X gil=1`"
)


def require_ours() -> None:
    """Refuse an interpreter that rankwise cannot be loaded into, and say what to do."""
    if _is_other():
        raise ImportError(_OTHER)
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(_UNLOCKED)


def _is_other() -> bool:
    """Return whether this is not the main interpreter of its process, as far as this Python tells."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # since 3.13, and before
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() != interpreters.get_main())
    return False
