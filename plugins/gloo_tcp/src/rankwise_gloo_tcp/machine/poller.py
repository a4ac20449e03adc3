"""Which sockets are ready: `epoll` where there is one, what `selectors` thinks best (kqueue, poll) elsewhere."""

from __future__ import annotations

import select
import selectors
import socket
from contextlib import suppress
from typing import Any

READ, WRITE = 1, 4  # the values of EPOLLIN and EPOLLOUT


class _Selector:
    """A selector with the methods of `select.epoll`, which also sees what changes while a thread sleeps in it."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._asleep = False
        # opens: pipes, socket pairs and files without a name, within a process or to its children
        # reached by: the processes that inherit them; processes of this user, and root, through /proc
        # guarded by: no name; nobody inherits what was not handed over
        # proved by: tests/security/test_openings.py::test_a_child_inherits_nothing_that_was_not_handed_over
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def register(self, fd: int, mask: int) -> None:
        self._selector.register(fd, _events(mask))
        self._changed()

    def modify(self, fd: int, mask: int) -> None:
        self._selector.modify(fd, _events(mask))
        self._changed()

    def unregister(self, fd: int) -> None:
        self._selector.unregister(fd)
        self._changed()

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        self._asleep = True
        try:
            found = self._selector.select(timeout_s)
        finally:
            self._asleep = False
        with suppress(BlockingIOError):
            self._woken.recv(512)
        mine = self._woken.fileno()
        return [(key.fd, _mask(events)) for key, events in found if key.fd != mine]

    def fileno(self) -> int:
        return -1  # there are systems on which nobody can wait for it

    def close(self) -> None:
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _changed(self) -> None:
        if self._asleep:
            with suppress(OSError):  # full: it is being woken already
                self._waker.send(b"w")


def _events(mask: int) -> int:
    return selectors.EVENT_READ * bool(mask & READ) | selectors.EVENT_WRITE * bool(mask & WRITE)


def _mask(events: int) -> int:
    return READ * bool(events & selectors.EVENT_READ) | WRITE * bool(events & selectors.EVENT_WRITE)


def make_poller() -> Any:
    """Return an object with `register`, `modify`, `unregister`, `poll(timeout_s)`, `fileno` and `close`."""
    return select.epoll() if hasattr(select, "epoll") else _Selector()
