"""Where a rank listens: a table of transports, and what each says on the rank's card."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from rankwise.backends import Context, Deadline, compiled_parts
from rankwise_gloo_tcp.machine import cores
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.setup import cards
from rankwise_gloo_tcp.setup.privacy import ENCRYPTED
from rankwise_network import doors, interface

VARIABLE, INTEGRITY = "RANKWISE_GLOO_TRANSPORT", "RANKWISE_GLOO_INTEGRITY"
CONNECTIONS, _MOST_CONNECTIONS = "RANKWISE_GLOO_CONNECTIONS", 16

#: For each value of the variable the transports that a rank serves, in the order in which peers prefer them. Where all
#: ranks of a group share a board, pipes through its memory take the place of Unix sockets.
TRANSPORTS: dict[str, tuple[str, ...]] = {"auto": ("unix", "tcp"), "tcp": ("tcp",), "shm": ("unix",)}


class _Listening(NamedTuple):
    """A listening socket, whether it serves this host alone, and what the card says of it."""

    sock: socket.socket
    near: bool
    fields: dict[str, Any]


def chosen() -> str:
    """Return which transports this rank was told to use.

    Raises:
        ValueError: There is no such, or not on this system.
    """
    transport = os.environ.get(VARIABLE, "auto")
    if transport not in TRANSPORTS:
        raise ValueError(f"{VARIABLE}={transport}: expected one of {', '.join(TRANSPORTS)}")
    if transport == "shm" and not _has_unix():
        raise ValueError(f"{VARIABLE}=shm: this system has no abstract Unix sockets")
    return transport


def listen(
    context: Context, transport: str, has_secret: bool, listeners: list[tuple[socket.socket, bool]], deadline: Deadline
) -> Card:
    """Open the listening sockets of a rank, and return the card that says where they are.

    Args:
        context: What the group is made for.
        transport: One of `TRANSPORTS`.
        has_secret: Whether there is a job secret, or files that prove this rank: else no other host is served.
        listeners: Where each socket is noted, with whether it serves this host alone.
        deadline: When the look-up of a name must have ended.
    """
    fields: dict[str, Any] = {}
    for name in TRANSPORTS[transport]:
        listening = _LISTEN[name](context, has_secret, deadline)
        if listening is not None:
            listeners.append((listening.sock, listening.near))
            fields.update(listening.fields)
    here, space = cards.machine()
    uid = os.geteuid() if hasattr(os, "geteuid") else -1
    me = platform.node(), here, space, uid, os.getpid()
    blank = Card(*me, "", "", 0, transport, integrity(), "", "", "", "", cores.mine(), connections())
    return blank._replace(compiled=int(compiled_parts.module() is not None), **fields)


def _listen_unix(context: Context, has_secret: bool, deadline: Deadline) -> _Listening | None:
    if not _has_unix():
        return None
    name = f"rankwise-{os.urandom(16).hex()}"
    return _Listening(doors.open_at(name), True, {"unix": name})


def _listen_tcp(context: Context, has_secret: bool, deadline: Deadline) -> _Listening | None:
    address = _local_address(context.store, has_secret, deadline)
    if not has_secret and not interface.is_loopback(address):
        return None
    sock = interface.at_free_port(partial(interface.listening, address))
    return _Listening(sock, False, {"address": address, "port": sock.getsockname()[1]})


#: What opens each transport's socket, or None where it cannot be had.
_LISTEN: dict[str, Callable[[Context, bool, Deadline], _Listening | None]] = {
    "unix": _listen_unix,
    "tcp": _listen_tcp,
}


def _local_address(store: Any, has_secret: bool, deadline: Deadline) -> str:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None)
    if isinstance(host, str) and host:
        return interface.local_address(host, deadline.remaining())
    return (interface.outward_address() if has_secret else None) or "127.0.0.1"


def integrity() -> str:
    """Return what of the frames between hosts this rank was told to protect.

    Raises:
        ValueError: There is no such.
    """
    value = os.environ.get(INTEGRITY, "header")
    if value not in ("header", "full", ENCRYPTED):
        raise ValueError(f"{INTEGRITY}={value}: expected header, full or {ENCRYPTED}")
    return value


def connections() -> int:
    """Return how many connections this rank was told that a pair on different hosts may have.

    Raises:
        ValueError: It is no such number.
    """
    value = os.environ.get(CONNECTIONS, "1")
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST_CONNECTIONS):
        raise ValueError(f"{CONNECTIONS}={value}: expected a number from 1 to {_MOST_CONNECTIONS}")
    return int(value)


def _has_unix() -> bool:
    return platform.system() == "Linux"
