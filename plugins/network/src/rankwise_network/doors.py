"""What all that listen have in common: who may stand at their door, how many, and for how long.

Any user of a machine can read the names of abstract Unix sockets and the numbers of ports, connect, and say nothing.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from time import monotonic, sleep

from rankwise.stores import Deadline

__all__ = [
    *("BACKLOG", "NO_DESCRIPTORS", "PATIENCE_S", "PLACES", "ROUNDS"),
    *("Patience", "await_free", "call_at", "is_own_user", "need", "open_at", "owner_of"),
]

#: How many connections that have not proved themselves a listener has at a time, before the one that has waited longest
#: must go; how long each may take; and in how many looks at the clock at the least that runs out, as this process may
#: have stood still itself.
PLACES, PATIENCE_S, ROUNDS = 128, 5.0, 5
#: How many wait in the kernel until they are accepted.
BACKLOG = 1024
#: Why accepting fails where the process has used up its descriptors.
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_CREDENTIALS, _TIME = struct.Struct("iII"), struct.Struct("ll")
#: How long the kernel waits at a time for a place in a queue that is full: Python sees signals in between.
_WAIT_US = 100_000
#: How often to look whether strangers that held the last descriptors have been sent away.
_LOOK_S = 0.01


class Patience:
    """How long somebody has been waited for."""

    __slots__ = ("_looked_at", "_waited_s")

    def __init__(self) -> None:
        self._looked_at, self._waited_s = monotonic(), 0.0

    def has_had(self, limit_s: float, now: float) -> bool:
        """Tell, in each round of a loop, whether so much time has passed; time without a processor counts little."""
        self._waited_s += min(now - self._looked_at, limit_s / ROUNDS)
        self._looked_at = now
        return self._waited_s >= limit_s


def open_at(name: str) -> socket.socket:
    """Return an abstract Unix socket that listens.

    Raises:
        OSError: It cannot.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # opens: Unix sockets without a file: those that ranks, boards and `rankwise top` listen at
        # reached by: every process of this host in the same network namespace
        # guarded by: other users than this one and root are turned away; a rank and a board ask for the proof of
        # the handshake too, where there is a job secret; at most 128 strangers, for 5 s each
        # proved by: tests/security/test_beginning.py
        listener.bind("\0" + name)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def call_at(name: str, deadline: Deadline) -> socket.socket:
    """Connect to an abstract Unix socket, and wait for a place where strangers have filled its queue.

    Raises:
        TimeoutError: There has been none in time.
        OSError: Nobody listens there.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The kernel lets those that wait in it have their turn; who only tried again and again might never have one.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(0, _WAIT_US))
        while True:
            try:
                sock.connect("\0" + name)
                break
            except BlockingIOError:
                if deadline.expired():
                    raise TimeoutError("its queue is full") from None
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(0, 0))
        sock.settimeout(max(deadline.remaining(), 0.001))
    except BaseException:
        sock.close()
        raise
    return sock


def is_own_user(sock: socket.socket) -> bool:
    """Tell whether the other end of a Unix socket belongs to this user, or to root, or the system cannot tell."""
    return not hasattr(socket, "SO_PEERCRED") or owner_of(sock) in (os.geteuid(), 0)


def owner_of(sock: socket.socket) -> int:
    """Return the user that the other end of a Unix socket belongs to, by number."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def need(count: int) -> None:
    """See that so many descriptors can be opened, before a library needs some that cannot cope without them.

    Raises:
        OSError: They cannot.
    """
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while len(held) < count:
            held.append(os.dup(held[0]))
    finally:
        for descriptor in held:
            os.close(descriptor)


def await_free(count: int, deadline: Deadline) -> None:
    """Wait until so many descriptors can be opened: a crowd of strangers may hold them until it is sent away.

    Raises:
        OSError: They cannot.
    """
    patience = Deadline(min(PATIENCE_S, deadline.remaining()))
    while True:
        try:
            need(count)
            return
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or patience.expired():
                raise
        sleep(_LOOK_S)
