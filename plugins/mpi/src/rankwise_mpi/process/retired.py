"""Communicators of groups that this process has left when its default group was reconfigured, until nobody needs them.

A process that is left out does not know it, and may still send. MPI gives the identity of a communicator that is freed
to the next one, which would take such a message for its own. So a communicator is freed once all its members have come
to a later group, as each then has left its own configuration before; what has come meanwhile is thrown away first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI


class Retired:
    """The communicators that wait for their end."""

    def __init__(self) -> None:
        self._waiting: list[tuple[frozenset[int], list[MPI.Intracomm]]] = []
        self._lock = threading.RLock()

    def add(self, comms: Iterable[MPI.Intracomm], ranks: Sequence[int]) -> None:
        """Keep the communicators of a group.

        Args:
            comms: They; nothing is pending on them here.
            ranks: The members in MPI.
        """
        with self._lock:
            self._waiting.append((frozenset(ranks), list(comms)))

    def free_those_within(self, ranks: Sequence[int]) -> None:
        """Free the communicators of groups whose members have all come to make another one.

        Args:
            ranks: Who has come, as ranks of MPI.
        """
        with self._lock:
            over = [each for each in self._waiting if each[0].issubset(ranks)]
            self._waiting = [each for each in self._waiting if each not in over]
        for _, comms in over:
            for comm in comms:
                _empty(comm)
                comm.Free()

    def __len__(self) -> int:
        return len(self._waiting)


def _empty(comm: MPI.Intracomm) -> None:
    """Receive what was sent and nobody has received."""
    import numpy as np
    from mpi4py import MPI

    status = MPI.Status()
    while (met := comm.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)) is not None:
        data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        met.Recv((data, data.nbytes, MPI.BYTE))
