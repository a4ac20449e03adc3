"""A proxy that loses answers, and holds requests back, at the moments that a test chooses."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Passes bytes between clients and a server.

    Args:
        port: The server's port at the loopback address.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        #: How many answers are still to be lost.
        self.to_lose = 0
        #: How many requests are still to be held back.
        self.to_hold = 0
        self._held: list[tuple[socket.socket, bytes]] = []
        self.lost = 0
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def release(self) -> None:
        """Pass on what was held back, and wait until the server has answered it."""
        held, self._held = self._held, []
        for sock, request in held:
            with sock:
                sock.sendall(request)
                assert sock.recv(65536)

    def close(self) -> None:
        """End all connections."""
        self._ended.set()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()
        for sock, _ in self._held:
            sock.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            if select.select([self._listener], [], [], 0.02)[0]:
                with contextlib.suppress(OSError):
                    client = self._listener.accept()[0]
                    self._threads.append(threading.Thread(target=self._pass, args=(client,), daemon=True))
                    self._threads[-1].start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._to)) as server:
            changes = False
            while not self._ended.is_set():
                ready = select.select([client, server], [], [], 0.02)[0]
                if client in ready:
                    request = _whole(client)
                    changes = _is_a_swap(request) or _settles(request)
                    if not request or (_is_a_swap(request) and self._holds(request, server)):
                        return
                    server.sendall(request)
                if server in ready:
                    answer = server.recv(1 << 20)
                    if not answer or (changes and self._loses()):
                        return
                    client.sendall(answer)

    def _holds(self, request: bytes, server: socket.socket) -> bool:
        if self.to_hold == 0:
            return False
        self.to_hold -= 1
        self._held.append((server.dup(), request))
        return True

    def _loses(self) -> bool:
        if self.to_lose == 0:
            return False
        self.to_lose, self.lost = self.to_lose - 1, self.lost + 1
        return True


def _whole(client: socket.socket) -> bytes:
    """Return a request; one of HTTP may come in two parts."""
    request = client.recv(1 << 20)
    head, _, body = request.partition(b"\r\n\r\n")
    wanted = re.search(rb"Content-Length: (\d+)", head, re.IGNORECASE)
    while wanted and len(body) < int(wanted[1]):
        more = client.recv(1 << 20)
        request, body = request + more, body + more
    return request


def _is_a_swap(request: bytes) -> bool:
    """Tell whether a request is one that changes a value: it has what its line's number is taken by."""
    return (b" swap\r\n" in request or b"c3dhcA==" in request) and not _settles(request)


def _settles(request: bytes) -> bool:
    """Tell whether a request asks what became of such a one."""
    return request.endswith(b" settled\r\n") or b"c2V0dGxl" in request


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """Have a proxy to a port."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
