"""The receives of one communicator that have not met a message, in the order they were begun.

A message is matched by probing, and of two receives that could take the same message only the older may probe.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi4py import MPI

if TYPE_CHECKING:
    from rankwise_mpi.works import ReceiveWork

__all__ = ["Receives"]

Place = Callable[[int], tuple[MPI.Intracomm, int]]


class Receives:
    """The waiting receives, by tag and source.

    Args:
        place: Tells the communicator, and the tag on it, of a tag.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._waiting: dict[int, dict[int | None, deque[ReceiveWork]]] = {}
        #: Those that wait, and which in the order of their beginning each is.
        self.ages: dict[ReceiveWork, int] = {}
        self._begun = 0

    def add(self, receive: ReceiveWork) -> None:
        """Put a receive behind all others."""
        with self._lock:
            self._begun += 1
            self.ages[receive] = self._begun
            self._waiting.setdefault(receive.tag, {}).setdefault(receive.src, deque()).append(receive)

    def match(self, receive: ReceiveWork, status: MPI.Status) -> MPI.Message | None:
        """Return the message that meets a receive, which then waits no longer; None if there is none yet."""
        comm, tag = self._place(receive.tag)
        source = MPI.ANY_SOURCE if receive.src is None else receive.src
        with self._lock:
            if receive not in self.ages or not self._is_next(receive):
                return None
            met: MPI.Message | None = comm.Improbe(source, tag, status)
            if met is not None:
                self._remove(receive)
            return met

    def withdraw(self, receive: ReceiveWork) -> bool:
        """Forget a receive; tell whether it was waiting."""
        with self._lock:
            waiting = receive in self.ages
            if waiting:
                self._remove(receive)
        return waiting

    def _is_next(self, receive: ReceiveWork) -> bool:
        """Tell whether no older receive could take the same message."""
        queues, age = self._waiting[receive.tag], self.ages[receive]
        rivals = queues if receive.src is None else (receive.src, None)
        firsts = (queues[src][0] for src in rivals if src in queues)
        return all(first is receive or self.ages[first] > age for first in firsts)

    def _remove(self, receive: ReceiveWork) -> None:
        del self.ages[receive]
        queues = self._waiting[receive.tag]
        queues[receive.src].remove(receive)
        if not queues[receive.src]:
            del queues[receive.src]
        if not queues:
            del self._waiting[receive.tag]
