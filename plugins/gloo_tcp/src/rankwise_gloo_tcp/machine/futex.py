"""Waiting for a word of shared memory to change, and waking the threads that wait. In Python on Linux and x86 only.

There the stores of one processor are seen by others in their order, and taking a lock is a full fence. Elsewhere
`rankwise-native` does the waiting, and has a fence.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from rankwise.backends import compiled_parts as native

_CALL_NUMBERS = {"x86_64": 202}
_WAIT, _WAKE = 0, 1
_EVERYBODY = 2**31 - 1


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def available() -> bool:
    """Tell whether this machine has what is needed."""
    return platform.system() == "Linux" and platform.machine() in _CALL_NUMBERS and _call() is not None


@cache
def _call() -> Any:
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (AttributeError, OSError):
        return None
    call.restype = ctypes.c_long
    call.argtypes = (
        ctypes.c_long,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint32,
    )
    return call


_number = _CALL_NUMBERS.get(platform.machine(), 0)
#: Taking and giving it back, in a `with` that an interrupt cannot cut in two, is a fence.
lock = threading.Lock()


def _fence() -> None:
    """Let no later load pass an earlier store."""
    with lock:
        return


_compiled = native.module()
fence: Callable[[], None] = _fence if _compiled is None else _compiled.fence


def wait(address: int, expected: int, timeout_s: float) -> None:
    """Sleep while the 32-bit word at `address` is `expected`, until somebody wakes or the time is up."""
    time = _Time(int(timeout_s), int(timeout_s % 1 * 1e9))
    _call()(_number, address, _WAIT, expected & 0xFFFFFFFF, ctypes.addressof(time), None, 0)


def wake(address: int) -> None:
    """Wake all that sleep at `address`."""
    _call()(_number, address, _WAKE, _EVERYBODY, None, None, 0)
