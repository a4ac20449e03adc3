"""The items of queues that clients hold and have not confirmed: a client that is gone takes none with it.

An item that has been confirmed is *leaving* until its client has read that it was in time: else that one gives it back,
and who has been told meanwhile that the queue is empty would take the item for lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from rankwise.store.queues import LEASE_S

__all__ = ["Lent"]


class _Loan(NamedTuple):
    client: bytes
    queue: str
    until: float


class Lent:
    """Who holds which item, and until when at most; and which items are leaving."""

    def __init__(self) -> None:
        self._loans: dict[bytes, _Loan] = {}
        self._leaving: dict[bytes, _Loan] = {}

    def __bool__(self) -> bool:
        return bool(self._loans or self._leaving)

    def lend(self, client: bytes, queue: str, token: bytes) -> None:
        """Note that a client has been sent an item."""
        self._loans[token] = _Loan(client, queue, monotonic() + LEASE_S)

    def settle(self, token: bytes) -> None:
        """Forget an item that has been confirmed or released."""
        self._loans.pop(token, None)
        self._leaving.pop(token, None)

    def leave(self, client: bytes, queue: str, token: bytes) -> None:
        """Note that a client is told that it has an item."""
        self._leaving[token] = _Loan(client, queue, monotonic() + LEASE_S)

    def has_left(self, token: bytes) -> str | None:
        """Forget an item whose client has read so; return its queue, or None if the token is none of these."""
        loan = self._leaving.pop(token, None)
        return None if loan is None else loan.queue

    def is_leaving(self, queue: str) -> bool:
        """Tell whether an item of a queue is leaving."""
        return any(loan.queue == queue for loan in self._leaving.values())

    def forget_late(self) -> set[str]:
        """Forget the items that have been leaving for too long; return their queues."""
        now = monotonic()
        late = [token for token, loan in self._leaving.items() if loan.until <= now]
        return {self._leaving.pop(token).queue for token in late}

    def clients(self) -> set[bytes]:
        """Return those that hold something."""
        return {loan.client for loan in self._loans.values()}

    def take_late(self) -> Sequence[tuple[str, bytes]]:
        """Take queue and token of the items that have been held for too long."""
        now = monotonic()
        return self._take([token for token, loan in self._loans.items() if loan.until <= now])

    def take_of(self, client: bytes) -> Sequence[tuple[str, bytes]]:
        """Take queue and token of what a client holds that is gone."""
        return self._take([token for token, loan in self._loans.items() if loan.client == client])

    def _take(self, tokens: Sequence[bytes]) -> Sequence[tuple[str, bytes]]:
        return [(self._loans.pop(token).queue, token) for token in tokens]
