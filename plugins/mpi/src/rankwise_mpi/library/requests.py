"""Requests of MPI, one or several, as what waits for them sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Testable(Protocol):
    """A request of mpi4py, or several."""

    def Test(self) -> bool:
        """Make progress, and tell whether it has ended."""


class Requests:
    """Several requests that end together."""

    def __init__(self, requests: Sequence[Testable]) -> None:
        self._requests = list(requests)

    def Test(self) -> bool:
        """Make progress, and tell whether all have ended."""
        self._requests = [request for request in self._requests if not request.Test()]
        return not self._requests
