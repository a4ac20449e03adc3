"""The receives of one communicator that have not met a message, in the order they were begun.

A message is matched by probing, and of two receives that could take the same message only the older may. Which receive
somebody waits for does not matter: `match` goes through all of them, as the message of one may be behind another's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from mpi4py import MPI

CommOf = Callable[[int], tuple[MPI.Intracomm, int]]


class Receive(Protocol):
    """A receive that waits for its message."""

    src: int | None
    tag: int

    def meet(self, met: MPI.Message, status: MPI.Status) -> None:
        """Take the message, which nobody else can any more."""


class Receives:
    """The waiting receives, by tag and source.

    Args:
        place: Tells the communicator, and the tag on it, of a tag.
    """

    def __init__(self, place: CommOf) -> None:
        self._place = place
        # A signal handler that aborts the group may have interrupted its own thread in here.
        self._lock = threading.RLock()
        self._waiting: dict[int, dict[int | None, deque[Receive]]] = {}
        #: Those that wait, and which in the order of their beginning each is.
        self.ages: dict[object, int] = {}
        self._begun = 0

    def add(self, receive: Receive) -> None:
        """Put a receive behind all others."""
        with self._lock:
            self._begun += 1
            self.ages[receive] = self._begun
            self._waiting.setdefault(receive.tag, {}).setdefault(receive.src, deque()).append(receive)

    def withdraw(self, receive: Receive) -> bool:
        """Forget a receive; tell whether it was waiting."""
        with self._lock:
            if self.ages.pop(receive, None) is None:
                return False
            queues = self._waiting[receive.tag]
            queues[receive.src].remove(receive)
            if not queues[receive.src]:
                del queues[receive.src]
            if not queues:
                del self._waiting[receive.tag]
            return True

    def match(self, tag: int | None = None) -> None:
        """Let the receives of one tag, or all, meet what has come."""
        with self._lock:
            for each in list(self._waiting) if tag is None else [tag]:
                while self._match_one(each):
                    pass

    def probe(self, src: int | None, tag: int, status: MPI.Status) -> bool:
        """Tell whether a message has come that no waiting receive takes."""
        comm, place = self._place(tag)
        source = MPI.ANY_SOURCE if src is None else src
        with self._lock:
            while comm.Iprobe(source, place, status):
                queues = self._waiting.get(tag, {})
                if None not in queues and status.Get_source() not in queues:
                    return True
                self.match(tag)  # one of these takes it
            return False

    def _match_one(self, tag: int) -> bool:
        """Let one receive of a tag meet its message; false if none can."""
        status = MPI.Status()
        for first in self._firsts(tag):
            met = self._probe(first, status)
            if met is not None and self.withdraw(first):
                first.meet(met, status)
                return True
        return False

    def _firsts(self, tag: int) -> list[Receive]:
        """Return the oldest receive of each source, the oldest of all first."""
        return sorted((queue[0] for queue in self._waiting.get(tag, {}).values()), key=self.ages.__getitem__)

    def _probe(self, first: Receive, status: MPI.Status) -> MPI.Message | None:
        comm, tag = self._place(first.tag)
        queues, age = self._waiting[first.tag], self.ages[first]
        if first.src is not None:
            anyone = queues.get(None)
            if anyone and self.ages[anyone[0]] < age:
                return None  # who takes from anyone, and has probed already, comes first
            return comm.Improbe(first.src, tag, status)
        claimed = {src for src, queue in queues.items() if src is not None and self.ages[queue[0]] < age}
        if not claimed:
            return comm.Improbe(MPI.ANY_SOURCE, tag, status)
        free = (src for src in range(comm.size) if src not in claimed)
        return next((met for src in free if (met := comm.Improbe(src, tag, status)) is not None), None)
