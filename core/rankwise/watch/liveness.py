"""The processes of the ranks on this machine: whether they live, how they ended, what state they are in.

A descriptor of a process tells of its end at once, whatever its threads do, and cannot mean another process that gets
the same number later.
"""

from __future__ import annotations

import os
import select
import signal
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rankwise.groups.handshake import process_space, started_at

__all__ = ["Processes", "ending"]

#: From Linux 6.15 on a descriptor tells the exit status even after the parent has taken it.
_PIDFD_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_WITH_EXIT = 1 << 3

_STATES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "waiting for a device",
    "R": "running, so that something holds the interpreter",
    "S": "asleep, so that something holds the interpreter",
}


class Processes:
    """The other ranks' processes, as far as they are known and on this machine.

    Attributes:
        hosts: The host of each rank that is known.
        here: The ranks on this machine.
        descriptors: A descriptor for each of those; readable once the process has ended.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self.hosts: dict[int, str] = {}
        self.here: set[int] = set()
        self._pids: dict[int, int] = {}
        self._gone: set[int] = set()
        self.descriptors: dict[int, int] = {}

    def add(self, peer: int, card: Mapping[str, Any]) -> int | None:
        """Take in what a rank has told of itself; return a descriptor of its process if there is a new one."""
        if peer in self.hosts:
            return None
        self.hosts[peer] = str(card.get("host", "?"))
        if peer == self._rank or not card.get("space") or card["space"] != process_space():
            return None
        self.here.add(peer)
        self._pids[peer] = int(card["pid"])
        return self._open(peer, card.get("started"))

    def _open(self, peer: int, started: Any) -> int | None:
        if not hasattr(os, "pidfd_open") or self._pids[peer] == os.getpid():
            return None
        try:
            descriptor = os.pidfd_open(self._pids[peer])
        except OSError as error:
            if isinstance(error, ProcessLookupError):
                self._gone.add(peer)
            return None
        if started_at(self._pids[peer]) != started:  # another process has the number now
            os.close(descriptor)
            self._gone.add(peer)
            return None
        self.descriptors[peer] = descriptor
        return descriptor

    def end_of(self, peer: int, wait_s: float = 0.0) -> str | None:
        """Return how a process ended, None if it is still there or not on this machine."""
        if peer in self._gone:
            return "its process has ended"
        descriptor = self.descriptors.get(peer)
        if descriptor is None:
            return None
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return ending(descriptor, self._pids[peer]) if poller.poll(1000 * wait_s) else None

    def state(self, peer: int) -> str:
        """Say in what state a process is that does not answer; nothing if it is on another machine."""
        found = _stat(self._pids[peer])[:1] if peer in self.here else []
        return _STATES.get(found[0], "") if found else ""

    def close(self) -> None:
        """Give the descriptors back."""
        while self.descriptors:
            os.close(self.descriptors.popitem()[1])


def ending(descriptor: int, pid: int) -> str:
    """Say how a process ended, of which a descriptor says that it has."""
    status = _reaped_status(descriptor)
    if status is None:
        fields = _stat(pid)  # until its parent has asked, the status is there
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


def _stat(pid: int) -> list[str]:
    """Return what the system tells of a process, from its state on."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
