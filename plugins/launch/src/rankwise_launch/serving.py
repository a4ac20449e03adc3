"""What answers at the socket of a `JobStore`; loaded only where somebody comes."""

from __future__ import annotations

import platform
import resource
import socket
from contextlib import suppress
from typing import Any

import msgpack  # noqa: F401
import zmq  # noqa: F401

from rankwise.errors import DistError, PeerDiedError
from rankwise_launch.dead import Dead
from rankwise_stores import TCPStore
from rankwise_stores.serving import (
    Keys,
    Listener,
    Pool,
    server,  # noqa: F401
)

#: What telling the ranks of a death may take; they are about to be stopped.
_TELL_S = 1.0


def serve(host: str, address: str, listening: socket.socket, secret: bytes) -> Pool:
    """Answer at a socket, which is the store's from then on; to close what is returned ends that."""
    listener = Listener(host, address, listening)
    return Pool(listener.name, [address], listener.port, Keys.of(secret), listener)


def tell_of_death(address: str, port: int, secret: bytes, dead: Dead) -> None:
    """Have those raise that a rank has died who wait for it in `init_process_group`."""
    with (
        suppress(DistError, OSError),
        TCPStore(address, port, timeout=_TELL_S, secret=secret, wait_for_server=False) as store,
    ):
        tell(store, dead)


def tell(store: Any, dead: Dead) -> None:
    """Say so in the store of the ranks.

    Raises:
        DistError: It cannot be reached.
    """
    from rankwise.launching import MEETING, death_verdict  # which most launches have no need of

    verdict = death_verdict(PeerDiedError(dead.rank, platform.node(), dead.cause), "init_process_group")
    # As `rankwise.groups.joining.lend` has it: until there is a second life the first is the server's.
    again = store.peek("world/life")
    life = (again or (store.identity or b"").hex().encode()).decode()
    place = f"world/life-{life}/{MEETING}"
    cards = [store.peek(f"{place}/{key}") for key in ("config", f"rank/{dead.rank}")]
    if dead.is_awaited(cards[0], cards[1], again is None):
        store.compare_set(f"{place}/verdict", "", verdict)


def raise_limit(wanted: int) -> int | None:
    """Let this process have so many descriptors, or as many as it may; return its limit before, None if that stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return None
    return soft if set_limit(most) else None


def set_limit(limit: int, process: int = 0) -> bool:
    """Set how many descriptors this process, or another, may have; return whether it could be."""
    with suppress(OSError, ValueError, AttributeError):  # macOS cannot for another
        limits = (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        if process:
            resource.prlimit(process, resource.RLIMIT_NOFILE, limits)
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        return True
    return False
