"""Which sockets are ready: `epoll` where there is one, `poll` elsewhere."""

from __future__ import annotations

import select
from typing import Any

__all__ = ["READ", "WRITE", "make_poller"]

READ, WRITE = 1, 4  # the values of both POLLIN/POLLOUT and EPOLLIN/EPOLLOUT


class _Poll:
    """`select.poll` with the time-out and the methods of `select.epoll`."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register, self.modify = self._poll.register, self._poll.modify
        self.unregister = self._poll.unregister

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        return self._poll.poll(timeout_s * 1000)

    def close(self) -> None:
        """There is nothing to give back."""


def make_poller() -> Any:
    """Return an object with `register`, `modify`, `unregister`, `poll(timeout_s)` and `close`."""
    return select.epoll() if hasattr(select, "epoll") else _Poll()
