"""How ranks tell each other that they have given a group up, where MPI itself does not.

The notice is a short message to every other member. Who waits looks for one now and then; what can still end well is
given a moment to do so, as the sender may have left a call that needs nothing more from it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np
from mpi4py import MPI

from rankwise_mpi.library.requests import Testable
from rankwise_mpi.process.waiting import wait_until

_LONGEST = 1000
_GRACE_S = 0.25


class Notices:
    """The notices of one group.

    Args:
        comm: Where they travel.
        tag: Their tag there.
        name: What tells the group from others of its name: a communicator that comes after this one may have the same
            identity to MPI.
    """

    def __init__(self, comm: MPI.Intracomm, tag: int, name: str) -> None:
        self._comm = comm
        self._tag = tag
        self._head = f"{name}\n".encode()
        self._told = False
        self._heard: str | None = None
        self._heard_at = 0.0

    def tell(self, text: str, keep: Callable[[Testable | None, Any], object]) -> None:
        """Send a notice to all others, once; each request is given to `keep`, with what it reads from."""
        if self._told or self._heard is not None:
            return
        self._told = True
        notice = np.frombuffer(self._head + text.encode()[:_LONGEST], np.uint8)
        for peer in range(self._comm.size):
            if peer != self._comm.rank:
                keep(self._comm.Isend((notice, notice.nbytes, MPI.BYTE), peer, self._tag), notice)

    def has_come(self) -> bool:
        """Tell whether there is a notice that has not been read; as quickly as that can be told."""
        return self._comm.Iprobe(MPI.ANY_SOURCE, self._tag) or self._heard is not None

    def heard(self, at_once: bool = False) -> str | None:
        """Return the text of a notice that came some moments ago, or `at_once` of any, or None."""
        if self._heard is None:
            self._look()
        ripe = at_once or monotonic() - self._heard_at > _GRACE_S
        return self._heard if ripe else None

    def await_one(self, timeout_s: float) -> str | None:
        """Return the text of a notice as soon as there is one, or None when the time-out has passed."""
        wait_until(lambda: self.heard(at_once=True) is not None, timeout_s, lambda: None)
        return self._heard

    def _look(self) -> None:
        status = MPI.Status()
        met = self._comm.Improbe(MPI.ANY_SOURCE, self._tag, status)
        if met is None:
            return
        notice = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        met.Recv((notice, notice.nbytes, MPI.BYTE))
        data = notice.tobytes()
        if data.startswith(self._head):
            self._heard, self._heard_at = data[len(self._head) :].decode(errors="replace"), monotonic()
