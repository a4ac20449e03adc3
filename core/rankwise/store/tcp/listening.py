"""The listening socket of a `TCPStore`."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any

from rankwise.basics.systems import cause
from rankwise.errors import DistNetworkError
from rankwise.network.ports import at_free_port
from rankwise.store.tcp.zeromq import keep_alive, url

__all__ = ["Listener"]

_BACKLOG = 1024


class Listener:
    """A TCP socket that listens at one address, the first of several that is this machine's.

    It is made here and handed over to ZeroMQ, so that what goes wrong is known exactly.

    Raises:
        DistNetworkError: The port is taken or not allowed, or none of the addresses is this machine's.
    """

    def __init__(self, host: str, addresses: Sequence[str], port: int) -> None:
        for address in addresses:
            try:
                self._socket = _listen(address, port) if port else at_free_port(partial(_listen, address))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL and address != addresses[-1]:
                    continue
                where = f"{host}:{port}" if host == address else f"{host}:{port} ({address})"
                raise DistNetworkError(f"TCPStore: cannot serve at {where}: {_explain(error)}") from error
            break
        #: The address and the port at which it listens, and its descriptor, whoever owns it.
        self.address, self.port = address, int(self._socket.getsockname()[1])
        self.descriptor = self._socket.fileno()
        #: What is served, for messages.
        self.name = f"the store at {host}:{self.port}"

    def hand_over(self, server: Any) -> None:
        """Let a ZeroMQ socket accept what comes in; the descriptor is ZeroMQ's from now on."""
        import zmq

        server.ipv6 = ":" in self.address
        keep_alive(server)
        server.setsockopt(zmq.USE_FD, self.descriptor)
        server.bind(url(self.address, self.port))
        self._socket.detach()

    def close(self) -> None:
        """Stop listening, unless it has been handed over."""
        self._socket.close()


def _listen(address: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # Only lets a port be used again whose last connections are still fading away; nobody else can take it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(where)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _explain(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another program; choose another, or 0 to have one chosen"
    if error.errno == errno.EADDRNOTAVAIL:
        return "that is no address of this machine; rank 0 must run on the host that the address names"
    if error.errno == errno.EACCES:
        return "this user may not use that port; choose one above 1023"
    return cause(error)
