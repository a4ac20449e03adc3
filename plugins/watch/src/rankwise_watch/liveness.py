"""The processes of the ranks on this machine: whether they live, how they ended, what state they are in.

A descriptor of a process tells of its end immediately, whatever its threads do, and cannot mean another process that
gets the same number later. Where there are none, as on macOS, the number alone is asked for: once no process has it,
the rank's has ended; as long as one has, nobody knows.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from typing import Any

from rankwise.basics import processes
from rankwise.basics.process_end import ending, process_stat
from rankwise.groups.handshake import process_space, started_at
from rankwise_watch.starvation import Starvation

__all__ = ["Processes"]

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
        self._starvation = Starvation()
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
        descriptor = processes.watch(self._pids[peer])
        if descriptor < 0:
            if self._number_is_free(peer):
                self._gone.add(peer)
            return None
        if started_at(self._pids[peer]) != started:  # another process has the number now
            processes.release(descriptor)
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
            return None if self.tells_of(peer) or not self._number_is_free(peer) else "its process has ended"
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return ending(descriptor, self._pids[peer]) if poller.poll(1000 * wait_s) else None

    def tells_of(self, peer: int) -> bool:
        """Tell whether a process whose end is not known is there for sure."""
        return peer in self.here and hasattr(os, "pidfd_open")

    def _number_is_free(self, peer: int) -> bool:
        if peer not in self.here:
            return False
        try:
            os.kill(self._pids[peer], 0)
        except ProcessLookupError:
            return True
        except OSError:  # a process of somebody else has it
            pass
        return False

    def state(self, peer: int) -> str:
        """Say in what state a process is that does not answer; nothing if it is on another machine."""
        found = process_stat(self._pids[peer])[:1] if peer in self.here else []
        return _STATES.get(found[0], "") if found else ""

    def starved_s(self, peer: int) -> float:
        """Return for how long a process on this machine has wanted a processor in vain since it was first asked for."""
        return self._starvation.starved_s(self._pids[peer]) if peer in self.here else 0.0

    def is_fed(self, peer: int) -> None:
        """Learn that a process has sent a heartbeat."""
        if peer in self.here:
            self._starvation.forget(self._pids[peer])

    def close(self) -> None:
        """Give the descriptors back."""
        while self.descriptors:
            processes.release(self.descriptors.popitem()[1])
