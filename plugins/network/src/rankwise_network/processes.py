"""How processes of this machine end: one descriptor for each that tells of it, however many groups watch it."""

from __future__ import annotations

import os
import select
import signal
import struct
import threading
from contextlib import suppress

from rankwise.stores import process_stat

__all__ = ["is_gone", "process_ending", "release", "watch"]

#: From Linux 6.15 on a descriptor tells the exit status even after the parent has taken it.
_PIDFD_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_WITH_EXIT = 1 << 3

_lock = threading.Lock()
#: The descriptor for each process, and how many watch each descriptor.
_of: dict[int, int] = {}
_watchers: dict[int, int] = {}


def watch(pid: int) -> int:
    """Return a descriptor that can be read once a process has ended, to be released; -1 where there is none."""
    if pid == os.getpid() or not hasattr(os, "pidfd_open"):
        return -1
    with _lock:
        found = _of.get(pid)
        if found is None or _has_ended(found):  # then another process may have the number now
            try:
                found = _of[pid] = os.pidfd_open(pid)
            except OSError:
                return -1
            _watchers[found] = 0
        _watchers[found] += 1
        return found


def is_gone(pid: int) -> bool:
    """Tell whether no process has a number any more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # a process of somebody else has it
        pass
    return False


def release(descriptor: int) -> None:
    """Watch a process no more."""
    with _lock:
        _watchers[descriptor] -= 1
        if _watchers[descriptor] == 0:
            del _watchers[descriptor]
            for pid in [pid for pid, known in _of.items() if known == descriptor]:
                del _of[pid]
            os.close(descriptor)


def _has_ended(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


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


def _after_fork() -> None:
    """In a child, whose copies of groups release nothing more: begin with a lock that nobody holds."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
