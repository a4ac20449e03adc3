"""The processes of the ranks on this machine: whether they live, how they ended, what state they are in.

A descriptor of a process tells of its end immediately, whatever its threads do, and cannot mean another process that
gets the same number later. Where there are none, as on macOS, the number alone is asked for: once no process has it,
the rank's has ended; as long as one has, nobody knows.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping, Set
from typing import Any

from rankwise.observing import process_space, process_stat, started_at
from rankwise_network import processes
from rankwise_watch.starvation import Starvation

_STATES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "waiting for a device",
    "R": "running, so that something holds the interpreter",
    "S": "asleep, so that something holds the interpreter",
}


class Processes:
    """The other ranks' processes, as far as they are known and on this machine.

    What a rank has told of itself is decoded when somebody asks for that rank: with a thousand of them nobody asks for
    all.

    Attributes:
        descriptors: A descriptor for each process that is watched; readable once the process has ended.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._seats: dict[int, bytes | None] = {}
        self._cards: dict[int, Mapping[str, Any]] = {}
        self._space = process_space()
        self._gone: set[int] = set()
        self._starvation = Starvation()
        self.descriptors: dict[int, int] = {}

    def learn(self, seats: Mapping[int, bytes | None]) -> None:
        """Take in what ranks have told of themselves."""
        self._seats = {**seats, **self._seats}

    def known(self) -> Set[int]:
        """Return the ranks that are known."""
        return self._seats.keys()

    def host(self, peer: int) -> str:
        """Return the host of a rank, as far as it is known."""
        return str(self._card(peer).get("host", "?"))

    def is_here(self, peer: int) -> bool:
        """Tell whether the process of a rank is another one on this machine."""
        card = self._card(peer)
        return peer != self._rank and bool(card.get("space")) and card["space"] == self._space

    def here(self) -> Set[int]:
        """Return the ranks on this machine; what stands for it is in what they have told."""
        mark = json.dumps(self._space).encode()
        likely = [] if not self._space else [rank for rank, seat in self._seats.items() if seat and mark in seat]
        return {rank for rank in likely if rank != self._rank}

    def watch(self, peer: int) -> int | None:
        """Return a descriptor of the process of a rank on this machine if it has not been watched before."""
        if peer in self.descriptors or peer in self._gone or not self.is_here(peer):
            return None
        pid = self.pid(peer)
        if not hasattr(os, "pidfd_open") or pid == os.getpid():
            return None
        descriptor = processes.watch(pid)
        if descriptor < 0:
            if self._number_is_free(peer):
                self._gone.add(peer)
            return None
        if started_at(pid) != self._card(peer).get("started"):  # another process has the number now
            processes.release(descriptor)
            self._gone.add(peer)
            return None
        self.descriptors[peer] = descriptor
        return descriptor

    def _card(self, peer: int) -> Mapping[str, Any]:
        card = self._cards.get(peer)
        if card is None:
            seat = self._seats.get(peer)
            card = json.loads(seat) if seat else {}
            if seat:
                self._cards[peer] = card
        return card

    def pid(self, peer: int) -> int:
        """Return the number of the process of a rank that is known."""
        return int(self._card(peer)["pid"])

    def end_of(self, peer: int, wait_s: float = 0.0) -> str | None:
        """Return how a process ended, None if it is still there or not on this machine."""
        self.watch(peer)
        descriptor = self.descriptors.get(peer)
        if peer in self._gone:
            return "its process has ended"
        if descriptor is None:
            return None if self.tells_of(peer) or not self._number_is_free(peer) else "its process has ended"
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return processes.process_ending(descriptor, self.pid(peer)) if poller.poll(1000 * wait_s) else None

    def tells_of(self, peer: int) -> bool:
        """Tell whether a process whose end is not known is there for sure."""
        return self.is_here(peer) and hasattr(os, "pidfd_open")

    def _number_is_free(self, peer: int) -> bool:
        return self.is_here(peer) and processes.is_gone(self.pid(peer))

    def state(self, peer: int) -> str:
        """Say in what state a process is that does not answer; nothing if it is on another machine."""
        found = process_stat(self.pid(peer))[:1] if self.is_here(peer) else []
        return _STATES.get(found[0], "") if found else ""

    def starved_s(self, peer: int, unseen_s: float = 0.0) -> float:
        """Return for how long a process on this machine has wanted a processor in vain since it was first asked for."""
        return self._starvation.starved_s(self.pid(peer), unseen_s) if self.is_here(peer) else 0.0

    def is_fed(self, peer: int) -> None:
        """Learn that a process has sent a heartbeat."""
        if self.is_here(peer):
            self._starvation.forget(self.pid(peer))

    def close(self) -> None:
        """Give the descriptors back."""
        while self.descriptors:
            processes.release(self.descriptors.popitem()[1])
