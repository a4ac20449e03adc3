"""Addresses of stores: resolved, judged, and written for ZeroMQ."""

from __future__ import annotations

import ipaddress
import socket

from rankwise import secret
from rankwise.errors import DistNetworkError

__all__ = ["require_guard", "resolve_host", "url"]


def resolve_host(host: str) -> str:
    """Return the numeric address of a host.

    Raises:
        DistNetworkError: It has none.
    """
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DistNetworkError(f"host {host!r} cannot be found: {error}; give its address instead") from error
    return str(found[0][4][0])


def require_guard(address: str) -> None:
    """Raise unless the address is loopback or the job has a secret.

    Raises:
        DistNetworkError: Whoever reaches the address could join; the message says how to make a secret.
    """
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback or secret.load() is not None:
        return
    raise DistNetworkError(f"{address} is not a loopback address and this job has no secret: {secret.ADVICE}")


def url(address: str, port: int) -> str:
    """Return ZeroMQ's spelling of an address; port 0 stands for any."""
    host = f"[{address}]" if ":" in address else address
    return f"tcp://{host}:{port or '*'}"
