"""The port at which the ranks meet: a free one, or the one that was asked for if nobody has it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from rankwise.launching import cause, shortage
from rankwise_launch.config import ExitCode, LaunchError
from rankwise_network.ports import OF_CONNECTIONS, is_of_connections, once_free


@contextmanager
def reserve_port(host: str, port: int | None, within_s: float) -> Iterator[int]:
    """Hold a port of this machine without listening, so that only a server that reuses addresses can have it.

    Args:
        host: The address that rank 0 will serve.
        port: The port; None picks a free one.
        within_s: How long to wait for it where a connection of this machine has it.

    Raises:
        LaunchError: The port is taken, or the address is not this machine's.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        why = cause(shortage() or error)
        raise LaunchError(ExitCode.PORT_IN_USE, f"the master address {host!r} cannot be resolved: {why}") from error
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        # The server sets this too, and may then bind beside a socket that does not listen.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # opens: nothing, a port is only held that does not listen
            once_free(lambda: holder.bind(address), port or 0, within_s)
        except OSError as error:
            raise LaunchError(ExitCode.PORT_IN_USE, _sentence(host, port, error)) from error
        yield int(holder.getsockname()[1])


def _sentence(host: str, port: int | None, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE and is_of_connections(port or 0):
        return f"port {port} on {host} is in use by {OF_CONNECTIONS}"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; give another --master-port, or none for a free one (on a single node)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine, which is node 0; check --master-addr and --node-rank"
    return f"port {port} on {host} cannot be served: {error.strerror}"
