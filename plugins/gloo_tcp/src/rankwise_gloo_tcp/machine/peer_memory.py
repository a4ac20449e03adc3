"""Reading another process's memory, where the kernel permits it: one copy instead of two, and no socket."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

#: How much is copied between two looks at whether the receive is still wanted.
_PIECE_NBYTES = 16 << 20


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


@cache
def _call() -> Any:
    try:
        call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (AttributeError, OSError):
        return None
    call.restype = ctypes.c_ssize_t
    call.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong)
    return call


def available() -> bool:
    """Tell whether this system knows the call at all, and nobody has ruled it out."""
    return _call() is not None and os.environ.get("RANKWISE_GLOO_PEER_MEMORY", "on") != "off"


def address(buffer: memoryview) -> int:
    """Return where a buffer lies in this process's memory."""
    return np.frombuffer(buffer, np.uint8).ctypes.data if len(buffer) else 0


def read(pid: int, source: int, target: memoryview, given_up: Callable[[], bool] = bool) -> bool:
    """Fill `target` from `source` in the memory of process `pid`; tell whether the kernel has permitted that."""
    to, left = address(target), len(target)
    while left and not given_up():
        count = min(left, _PIECE_NBYTES)
        if read_at(pid, source, to, count) != count:
            return False
        source, to, left = source + count, to + count, left - count
    return not left


def read_at(pid: int, source: int, to: int, nbytes: int) -> int:
    """Copy from address `source` of process `pid` to address `to` of this one; return how many bytes were copied."""
    mine, theirs = _Vector(to, nbytes), _Vector(source, nbytes)
    return int(_call()(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0))
