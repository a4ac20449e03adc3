"""What the operating system's refusals mean, in words that name the remedy."""

from __future__ import annotations

import errno
import os

__all__ = ["cause", "descriptor_limit", "shortage"]


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
