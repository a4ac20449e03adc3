"""Ports that the system has given to connections of this machine, from among those that a program may ask for.

A port is in use by such a connection as long as that lasts, and a minute longer. Where no program listens there,
it becomes free by itself.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

__all__ = ["OF_CONNECTIONS", "is_of_connections", "once_free"]

_T = TypeVar("_T")
#: Where the system tells of its sockets: no other systems do, and there nobody waits.
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"
#: A connection that has ended keeps its port for 60 s.
_FADED_S, _PAUSE_S = 65.0, 0.1
#: What has such a port, for messages.
OF_CONNECTIONS = (
    "a connection of this machine, to which the system has given it; choose one outside of "
    "/proc/sys/net/ipv4/ip_local_port_range"
)


def once_free(bind: Callable[[], _T], port: int, within_s: float, look: Callable[[], object] = bool) -> _T:
    """Return what `bind` does with a port, as soon as no connection of this machine has that.

    Args:
        bind: What takes the port.
        port: The port.
        within_s: How long to wait at the most.
        look: Called now and then while waiting; it may raise.

    Raises:
        OSError: It cannot: a program listens there, or a connection still has it after so long.
    """
    until, waits, said = time.monotonic() + min(within_s, _FADED_S), True, False
    while True:
        try:
            return bind()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not waits or time.monotonic() >= until:
                raise
        waits = is_of_connections(port)
        if waits:  # else it may have become free just now
            if not said:
                logging.getLogger("rankwise").warning("port %d is in use by a connection; waiting for it", port)
                said = True
            time.sleep(_PAUSE_S)
            look()


def is_of_connections(port: int) -> bool:
    """Tell whether connections of this machine have a port, and no program listens there."""
    states = set(_states(port))
    return bool(states) and _LISTENS not in states


def _states(port: int) -> Iterator[str]:
    wanted = f"{port:04X}"
    for table in _TABLES:
        with suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if local.rpartition(":")[2] == wanted:
                    yield state
