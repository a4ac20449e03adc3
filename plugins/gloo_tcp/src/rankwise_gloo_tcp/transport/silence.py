"""For how long the other machine has answered nothing on a TCP connection, as the system tells."""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import suppress
from typing import Protocol

#: After how much silence the system asks the other machine whether it is there, and how often it asks again. Its own
#: limit is as large as can be, as it is not for the system to end a connection that may come back.
_OPTIONS = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 127}
_IS_KNOWN = sys.platform == "linux" and all(hasattr(socket, name) for name in ("TCP_INFO", *_OPTIONS))
#: So many packets in a row must have been left unanswered: a lost one is none.
UNANSWERED = 3
#: The system's counts of packets sent again and of questions, both unanswered so far; milliseconds since data has come,
#: and since something has been confirmed.
_INFO = struct.Struct("=2x2B48x2I")


class Sock(Protocol):
    """What is asked of a socket."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option."""

    def getsockopt(self, level: int, option: int, nbytes: int, /) -> bytes:
        """Return an option that is a structure."""


def ask(sock: Sock) -> None:
    """Have the system ask the other machine from now on whether it is there, while nothing is under way."""
    if _IS_KNOWN:
        with suppress(OSError):
            for name, value in _OPTIONS.items():
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def silent_s(sock: Sock) -> float:
    """Return for how long the other machine has answered nothing, though asked; 0 if it answers, or nobody knows.

    A process that hangs, or does not read, is not silent: its machine answers for it.
    """
    if not _IS_KNOWN:
        return 0.0
    try:
        again, questions, *since_ms = _INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
    except (OSError, struct.error):
        return 0.0
    return min(since_ms) / 1000 if again + questions >= UNANSWERED else 0.0
