"""The server of a `TCPStore`: one thread, one socket, one table, and the requests that wait for a key."""

from __future__ import annotations

import secrets
import threading
from time import monotonic
from typing import Any, NamedTuple

from rankwise.errors import DistNetworkError, DistStoreError, ProtocolError
from rankwise.store import wire
from rankwise.store.address import url
from rankwise.store.table import CHANGES, Table, Wait

__all__ = ["StoreServer"]

#: How many requests of one client may wait at a time; a process has one for each of its threads at most.
_MAX_WAITING = 256


class _Waiting(NamedTuple):
    client: bytes
    number: int
    op: str
    args: list[Any]
    until: float


class StoreServer:
    """Serves the store at one address of this machine, and on a private one to its own process."""

    def __init__(self, host: str, port: int) -> None:
        import zmq

        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._table = Table()
        self._waiting: list[_Waiting] = []
        self._stop = secrets.token_bytes(16)
        #: Where clients in this process reach it without a network.
        self.private_url = f"inproc://{secrets.token_hex(8)}"
        try:
            self.port = self._bind(host, port)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._thread = threading.Thread(target=self._serve, name="rankwise store", daemon=True)
        self._thread.start()

    @property
    def context(self) -> Any:
        """The ZeroMQ context in which the private address can be reached."""
        return self._context

    def close(self) -> None:
        """Stop serving."""
        import zmq

        knock = self._context.socket(zmq.DEALER)
        knock.linger = 1000
        knock.connect(self.private_url)
        knock.send(self._stop)
        self._thread.join()
        knock.close(linger=0)
        self._context.term()

    def _bind(self, host: str, port: int) -> int:
        import zmq

        socket = self._socket
        socket.linger = 0
        socket.ipv6 = ":" in host
        socket.maxmsgsize = wire.MAX_MESSAGE
        socket.handshake_ivl = 5000
        socket.sndhwm = socket.rcvhwm = 0
        wire.server_security(socket)
        socket.bind(self.private_url)
        try:
            socket.bind(url(host, port))
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE:
                raise DistNetworkError(f"{host}:{port} is in use by another program; choose another port") from error
            raise DistNetworkError(f"cannot serve a store at {host}:{port}: {error}") from error
        return int(socket.last_endpoint.rpartition(b":")[2])

    def _serve(self) -> None:
        while True:
            if self._socket.poll(self._pause_ms()):
                frames = self._socket.recv_multipart()
                if frames[-1] == self._stop:
                    break
                if len(frames) == 2:
                    self._request(*frames)
            self._expire()
        # Long enough for the last answers to leave.
        self._socket.close(linger=100)

    def _pause_ms(self) -> int | None:
        if not self._waiting:
            return None
        return max(0, int(1000 * (min(w.until for w in self._waiting) - monotonic())) + 1)

    def _request(self, client: bytes, data: bytes) -> None:
        try:
            number, op, args, wait_s = wire.read_request(data)
        except ProtocolError as error:
            self._answer(client, 0, "protocol", str(error))
            return
        request = _Waiting(client, number, op, args, monotonic() + wait_s)
        if not self._try(request):
            if wait_s > 0 and sum(w.client == client for w in self._waiting) < _MAX_WAITING:
                self._waiting.append(request)
            else:
                self._answer(client, number, "wait", None)
        elif op in CHANGES:
            self._waiting = [waiting for waiting in self._waiting if not self._try(waiting)]

    def _try(self, request: _Waiting) -> bool:
        """Do a request and answer it; tell whether that was possible."""
        try:
            value = self._table.run(request.op, request.args)
        except Wait:
            return False
        except DistStoreError as error:
            self._answer(request.client, request.number, wire.status_of(error), str(error))
        else:
            self._answer(request.client, request.number, "ok", value)
        return True

    def _expire(self) -> None:
        now = monotonic()
        for late in [waiting for waiting in self._waiting if waiting.until <= now]:
            self._waiting.remove(late)
            self._answer(late.client, late.number, "wait", None)

    def _answer(self, client: bytes, number: int, status: str, value: Any) -> None:
        self._socket.send_multipart([client, wire.pack(number, status, value)])
