"""Locks on single bytes of an open file, which the kernel drops when their holder dies.

They belong to the open file, not to the process: closing another descriptor of the file does not drop them, and two
stores of one process exclude each other. Linux alone offers them.
"""

from __future__ import annotations

import errno
import os
import struct

try:
    from fcntl import F_OFD_SETLK, F_RDLCK, F_UNLCK, F_WRLCK, fcntl
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = True

__all__ = ["AVAILABLE", "release", "share", "take"]

#: struct flock of the kernel: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi0q")


def take(descriptor: int, byte: int) -> bool:
    """Lock a byte for this open file alone; tell whether nobody else held it."""
    return _try(descriptor, F_WRLCK, byte)


def share(descriptor: int, byte: int) -> bool:
    """Lock a byte together with others who share it; tell whether nobody held it alone."""
    return _try(descriptor, F_RDLCK, byte)


def release(descriptor: int, byte: int) -> None:
    """Give a byte back."""
    _try(descriptor, F_UNLCK, byte)


def _try(descriptor: int, kind: int, byte: int) -> bool:
    try:
        fcntl(descriptor, F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
