"""What MPI may still read or write although nobody waits for it any more."""

from __future__ import annotations

import threading
from typing import Any

from rankwise_mpi.library.requests import Testable


class Kept:
    """Requests that were given up, with their buffers, until they have ended; for good where nobody can tell."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Testable | None, Any]] = []
        # A signal handler that aborts a group may have interrupted its own thread in here.
        self._lock = threading.RLock()

    def add(self, request: Testable | None, buffers: Any) -> None:
        """Keep the buffers of a request; None stands for one that cannot be asked."""
        with self._lock:
            self._pairs = [pair for pair in [*self._pairs, (request, buffers)] if not _has_ended(pair[0])]

    def __len__(self) -> int:
        return len(self._pairs)


def _has_ended(request: Testable | None) -> bool:
    from mpi4py import MPI

    if request is None:
        return False
    try:
        return request.Test()
    except MPI.Exception:
        return True
