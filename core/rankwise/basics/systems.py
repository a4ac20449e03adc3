"""What Linux has and other systems may lack, in a form that serves on all of them, and what its refusals mean."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rankwise.errors import DistError

if TYPE_CHECKING:
    import signal

__all__ = [
    "after_fork",
    "blake2b",
    "boot_of_macos",
    "cause",
    "cores",
    "descriptor_limit",
    "die_with_parent",
    "keep_standard",
    "require_folder",
    "require_processes",
    "shortage",
    "signals",
]

_PR_SET_PDEATHSIG = 1
_SIGTERM = 15  # as everywhere; most programs do without the module that knows it by name


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def signals(*names: str) -> tuple[signal.Signals, ...]:
    """Return those signals of these names that this system has."""
    import signal

    return tuple(signal.Signals[name] for name in names if name in signal.Signals.__members__)


def after_fork(act: Callable[[], object]) -> None:
    """Have something done in every forked child, where processes can fork at all."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


def require_processes() -> None:
    """Raise where ranks cannot be processes: no backend connects them on Windows, and a removed folder starts none."""
    if not hasattr(os, "killpg"):
        text = "ranks are processes on Linux and macOS alone; rankwise.testing.local_world runs them as threads"
        raise DistError(text)
    require_folder()


def require_folder() -> None:
    """Raise where the working directory has been removed: Python starts no process there that finds its modules."""
    try:
        os.getcwd()
    except FileNotFoundError:
        text = "the folder in which this was started has been removed; change to one that is there"
        raise DistError(text) from None


def die_with_parent(number: int = _SIGTERM, parent: int = 0) -> Callable[[], None] | None:
    """Return what a new process calls to get a signal when its parent has ended; None where the kernel sends none.

    Args:
        number: The signal.
        parent: The parent, if it is not this process.
    """
    import ctypes  # which most programs do without

    try:
        prctl = ctypes.CDLL(None).prctl
    except (AttributeError, OSError, TypeError):  # Linux alone has it; Windows knows no library without a name
        return None
    return partial(_follow, prctl, parent or os.getpid(), number)


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


def _follow(prctl: Callable[[int, int], int], parent: int, number: int) -> None:
    prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it was quicker
        os._exit(1)


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
