"""The descriptors that an engine waits for, and what is called when one is ready; nothing of messages."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from rankwise_gloo_tcp.machine.poller import READ, make_poller

Handler = Callable[[int], None]


class Loop:
    """A poller with handlers, and a pipe that wakes the thread that sleeps in it.

    Attributes:
        moved_nbytes: How many bytes sockets have taken and brought.
        looking: Whether somebody looks for more without sleeping.
        helped: Whether the engine's own thread sleeps here, which gives way to callers when it is woken.
        bell: The descriptor that wakes the sleeper when something is written to it.
        bell_read: The one from which that is read.
    """

    __slots__ = ("_handlers", "_poller", "bell", "bell_read", "helped", "looking", "moved_nbytes")

    def __init__(self) -> None:
        self.moved_nbytes = 0
        self.looking = self.helped = False
        self._poller = make_poller()
        self._handlers: dict[int, tuple[int, Handler]] = {}
        self.bell_read, self.bell = _pipe()
        self.add(self.bell_read, READ, self._woken)

    def add(self, fd: int, mask: int, handler: Handler) -> None:
        """Call `handler` when a descriptor is ready."""
        if fd in self._handlers:
            self._poller.modify(fd, mask)
        else:
            self._poller.register(fd, mask)
        self._handlers[fd] = mask, handler

    def remove(self, fd: int) -> None:
        """Stop calling."""
        if self._handlers.pop(fd, None) is not None:
            self._poller.unregister(fd)

    def watch(self, sock: socket.socket, mask: int, handler: Handler | None) -> None:
        """Call `handler` when a socket is ready; for a mask of 0 no more."""
        fd = sock.fileno()
        if fd < 0 or self._handlers.get(fd, (0, None)) == (mask, handler):
            return
        if handler is None or not mask:
            self.remove(fd)
        else:
            self.add(fd, mask, handler)

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        """Wait until a descriptor is ready, and return those that are."""
        return self._poller.poll(timeout_s if timeout_s > 0 else 0)  # type: ignore[no-any-return]

    def fileno(self) -> int:
        """Return a descriptor that can be read once another is ready; -1 where there is none, or no more."""
        try:
            return self._poller.fileno()  # type: ignore[no-any-return]
        except ValueError:  # another thread has closed it
            return -1

    def dispatch(self, events: list[tuple[int, int]]) -> None:
        """Call the handlers of descriptors that were ready."""
        for fd, event in events:
            found = self._handlers.get(fd)
            if found is not None:
                found[1](event)

    def wake(self) -> None:
        """Wake the thread that sleeps in `poll`."""
        with suppress(OSError):  # full: it is being woken already
            os.write(self.bell, b"w")

    def hurry(self) -> None:
        """Have the engine's own thread look at what is new, if it is the one that sleeps."""
        if self.helped:
            self.wake()

    def close(self) -> None:
        """Give the descriptors back, and forget the handlers, which hold the engine."""
        self._poller.close()
        for descriptor in {self.bell_read, self.bell}:
            os.close(descriptor)
        self._handlers.clear()

    def _woken(self, event: int) -> None:
        with suppress(BlockingIOError):
            os.read(self.bell_read, 512)


def _pipe() -> tuple[int, int]:
    """Return both ends of a pipe; where the system has pipes by name, one descriptor is both."""
    # opens: the bell of a rank, a pipe into which others of its host write
    # reached by: processes of this user, and root, through /proc
    # guarded by: a byte only has the rank look; a rank that rings compares the inode first
    # proved by: tests/plugins/gloo_tcp/test_rings.py
    ends = os.pipe()
    with suppress(OSError):
        both = os.open(f"/proc/self/fd/{ends[0]}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        for end in ends:
            os.close(end)
        return both, both
    for end in ends:
        os.set_blocking(end, False)
    return ends
