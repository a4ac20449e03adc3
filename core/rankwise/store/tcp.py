"""`TCPStore`: a store that one process serves to the others over ZeroMQ."""

from __future__ import annotations

import os
import threading
from typing import Any

from rankwise.deadline import Deadline, Timeout
from rankwise.errors import DistNetworkError, ForkedProcessError
from rankwise.store import wire
from rankwise.store.address import require_guard, resolve_host, url
from rankwise.store.base import DEFAULT_TIMEOUT_S, Store
from rankwise.store.connection import Connection
from rankwise.store.server import StoreServer
from rankwise.store.table import HIDDEN, Wait

__all__ = ["TCPStore"]

#: What an operation that does not wait may take on a working network.
_ROUND_TRIP_S = 30.0


class TCPStore(Store):
    """A store at `host_name` and `port`.

    Away from loopback it is guarded by the job's secret, see `rankwise.secret`. It is bound to the one address that
    the host name stands for, never to all.

    Args:
        host_name: Name or address of the host that serves it.
        port: Its port; 0 lets the master pick one, which `port` then tells.
        world_size: How many users there will be, the master included.
        is_master: Serve the store from this process.
        timeout: How long to connect, and to wait for keys.
        wait_for_workers: If `world_size` is given, return once so many users have connected.
    """

    def __init__(
        self,
        host_name: str,
        port: int = 0,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        wait_for_workers: bool = True,
    ) -> None:
        super().__init__(timeout)
        deadline = Deadline(self._timeout_s)
        self.host, self.port, self.is_master = host_name, port, is_master
        self._pid, self._lock, self._closed = os.getpid(), threading.Lock(), False
        self._idle: list[Connection] = []
        self._server: StoreServer | None = None
        self._context: Any = None
        self._address = resolve_host(host_name)
        require_guard(self._address)
        try:
            self._begin(deadline)
            if world_size is not None and wait_for_workers:
                self.barrier(f"{HIDDEN}workers", world_size, deadline.remaining())
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"TCPStore({self.host!r}, {self.port})"

    def clone(self) -> Store:
        """Connect once more."""
        return TCPStore(self.host, self.port, timeout=self.timeout)

    def close(self) -> None:
        """Disconnect; the master stops serving, and every user's calls fail from then on."""
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        if self._server is not None:
            self._server.close()
        elif self._context is not None:
            self._context.term()

    def _begin(self, deadline: Deadline) -> None:
        import zmq

        if self.is_master:
            self._server = StoreServer(self._address, self.port)
            self.port, self._context = self._server.port, self._server.context
        elif not 0 < self.port < 1 << 16:
            raise ValueError(f"TCPStore: a client needs the master's port, not {self.port}")
        else:
            self._context = zmq.Context()
        self._request("check", ([],), 0.0, deadline)

    def _call(self, op: str, *args: Any, timeout_s: float = 0.0) -> Any:
        wait_s = min(timeout_s, wire.MAX_WAIT_S)
        return self._request(op, args, wait_s, Deadline(wait_s + min(_ROUND_TRIP_S, self._timeout_s)))

    def _request(self, op: str, args: tuple[Any, ...], wait_s: float, deadline: Deadline) -> Any:
        if os.getpid() != self._pid:
            raise ForkedProcessError(f"{self!r} belongs to the process that this one was forked from; make a new one")
        connection = self._take()
        try:
            status, value = connection.ask(op, args, wait_s, deadline)
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        if status == "wait":
            raise Wait
        return wire.result(status, value)

    def _take(self) -> Connection:
        """Return a connection that no other thread uses: sockets belong to one thread at a time."""
        with self._lock:
            if self._closed:
                raise DistNetworkError(f"{self!r} has been closed")
            if self._idle:
                return self._idle.pop()
        where = url(self._address, self.port) if self._server is None else self._server.private_url
        return Connection(self._context, where, repr(self))

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()
