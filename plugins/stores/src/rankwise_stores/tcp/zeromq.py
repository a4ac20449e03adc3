"""How server and clients of a `TCPStore` speak to ZeroMQ, which is loaded only where one of them is made."""

from __future__ import annotations

import struct
from typing import Any

#: How ZeroMQ tells of what happens to a socket: what, and a number that says more.
MONITOR_EVENT = struct.Struct("<HI")

#: Where clients in the server's own process reach it; only those that share its context can.
PRIVATE_URL = "inproc://store"


def url(address: str, port: int) -> str:
    """Return ZeroMQ's spelling of an address and a port."""
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"


def keep_alive(connecting: Any) -> None:
    """Have the kernel notice that the other host has vanished, within about twenty seconds.

    The kernel answers its probes even for a process that is stopped, so that a slow one is not taken for a dead one.
    """
    connecting.tcp_keepalive = 1
    connecting.tcp_keepalive_idle = connecting.tcp_keepalive_intvl = 5
    connecting.tcp_keepalive_cnt = 3
    connecting.tcp_maxrt = 20_000
