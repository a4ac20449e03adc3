"""What the operating system's refusals mean, in words that name the remedy."""

from __future__ import annotations

import errno
import os
import resource

__all__ = ["cause"]


def cause(error: BaseException) -> str:
    """Return why the system has refused something: an `OSError`, or another error with an `errno`, as ZeroMQ's."""
    number = getattr(error, "errno", None)
    if number in (errno.EMFILE, errno.ENFILE):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        whose = f"this process has no free file descriptor (its limit is {limit}; raise it with `ulimit -n`)"
        return whose if number == errno.EMFILE else "this machine has no free file descriptor (sysctl fs.file-max)"
    if number == errno.ENOSPC:
        return "the disk is full (No space left on device)"
    return getattr(error, "strerror", None) or (os.strerror(number) if number else str(error))
