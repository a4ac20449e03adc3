"""Descriptors that tell of the end of processes: one for each process, however many groups watch it."""

from __future__ import annotations

import os
import select
import threading

__all__ = ["is_gone", "release", "watch"]

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


def _after_fork() -> None:
    """In a child, whose copies of groups release nothing more: begin with a lock that nobody holds."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
