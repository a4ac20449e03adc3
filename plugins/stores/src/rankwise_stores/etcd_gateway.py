"""How etcd is spoken to: its JSON gateway, over connections of HTTP that the standard library makes."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rankwise.errors import DistStoreError
from rankwise_stores.line import LostError
from rankwise_stores.server_urls import EtcdPlace

#: Codes of gRPC after which nobody knows whether a request was carried out: cancelled, late, aborted, unavailable.
_PASSING = (1, 4, 10, 14)
_NO_TOKEN = "invalid auth token"
_TOO_LARGE = "request is too large"
_PATIENCE_S = 5.0


class Gateway:
    """One connection to one member of an etcd; each loss of it goes on to the next member.

    Args:
        place: Where the members are.
    """

    def __init__(self, place: EtcdPlace) -> None:
        self._place, self._at = place, 0
        self._connection: http.client.HTTPConnection | None = None
        self._token = ""

    def ask(self, path: str, body: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Make a request, and return what the answer says.

        Raises:
            LostError: Nobody knows whether it was carried out.
            DistStoreError: The server refuses.
        """
        if self._place.user and not self._token:
            self._log_in(within_s)
        return self._ask(path, body, within_s)

    def watch(self, key: bytes, within_s: float) -> Watch:
        """Return a watch of a key; it has begun.

        Raises:
            LostError: It has not.
            DistStoreError: The server refuses.
        """
        if self._place.user and not self._token:
            self._log_in(within_s)
        with self._errors():
            host, port = self._member()
            sock = socket.create_connection((host, port), within_s)
            try:
                if self._place.tls is not None:
                    sock = _tls(self._place).wrap_socket(sock, server_hostname=host)
                return Watch(sock, self._head("/v3/watch", host, port), key, within_s)
            except BaseException:
                sock.close()
                raise

    def disconnect(self) -> None:
        """Close the connection; the next request makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # ------------------------------------------------------------------ one request

    def _log_in(self, within_s: float) -> None:
        said = {"name": self._place.user, "password": self._place.password or ""}
        self._token = self._ask("/v3/auth/authenticate", said, within_s)["token"]

    def _ask(self, path: str, body: dict[str, Any], within_s: float) -> dict[str, Any]:
        with self._errors():
            connection = self._connect(within_s)
            connection.request("POST", path, json.dumps(body), self._headers())
            response = connection.getresponse()
            text = response.read()
            try:
                said = json.loads(text)
            except ValueError:
                raise http.client.HTTPException(f"status {response.status}, and no JSON") from None
        if response.status != 200:
            self._refused(said)
        return said  # type: ignore[no-any-return]

    def _connect(self, within_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            host, port = self._member()
            if self._place.tls is None:
                self._connection = http.client.HTTPConnection(host, port, timeout=within_s)
            else:
                self._connection = http.client.HTTPSConnection(host, port, timeout=within_s, context=_tls(self._place))
            self._connection.connect()
            # Head and body are two writes: without this the second waits for the first to be acknowledged.
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.sock.settimeout(within_s)
        return self._connection

    def _refused(self, said: Any) -> None:
        said = said if isinstance(said, dict) else {}
        text, code = str(said.get("message") or said.get("error")), said.get("code")
        if code in _PASSING:
            self._next()
            raise LostError(text)
        if _NO_TOKEN in text:  # it holds for some minutes
            self._token = ""
            raise LostError(text)
        more = "; start etcd with a larger --max-request-bytes to keep such values" if _TOO_LARGE in text else ""
        raise DistStoreError(f"{self._place.shown}: the server refuses: {text}{more}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            self._next()
            raise DistStoreError(f"{self._place.shown}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            self._next()
            raise LostError(str(error) or type(error).__name__) from error
        except BaseException:
            self.disconnect()
            raise

    # ------------------------------------------------------------------ members

    def _member(self) -> tuple[str, int]:
        return self._place.members[self._at % len(self._place.members)]

    def _next(self) -> None:
        self.disconnect()
        self._at += 1

    def _headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json", **({"Authorization": self._token} if self._token else {})}

    def _head(self, path: str, host: str, port: int) -> str:
        name = f"[{host}]" if ":" in host else host
        lines = [f"POST {path} HTTP/1.1", f"Host: {name}:{port}", *(f"{k}: {v}" for k, v in self._headers().items())]
        return "\r\n".join(lines)


class Watch:
    """A watch of one key: a request whose answer goes on, by a line for each change.

    What these say is not read: that something has come is enough to look at the key again.

    Args:
        sock: A connection, which is the watch's from now on.
        head: The request's head, as far as it is the same for all.
        key: The key.
        within_s: How long the server may take to begin.
    """

    def __init__(self, sock: socket.socket, head: str, key: bytes, within_s: float) -> None:
        self._sock = sock
        body = json.dumps({"create_request": {"key": encoded(key)}})
        sock.settimeout(within_s)
        sock.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        said = b""
        while b'"created":true' not in said:
            more = sock.recv(65536)
            said += more
            if not more or (b"\r\n" in said and b" 200 " not in said[: said.index(b"\r\n")]):
                status, _, _ = said.partition(b"\r\n")
                raise OSError(f"no watch: {status!r}")
        self._has_more = b'"events"' in said

    def wait(self, within_s: float) -> bool:
        """Return once the key has changed; tell whether it has.

        Raises:
            LostError: The connection is lost.
        """
        if self._has_more:
            self._has_more = False
            return True
        try:
            self._sock.settimeout(max(within_s, 0.001))
            if self._sock.recv(65536):
                return True
        except TimeoutError:
            return False
        except OSError as error:
            raise LostError(str(error)) from error
        raise LostError("the server has closed the connection")

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


def encoded(data: bytes) -> str:
    """Return bytes as the gateway takes them."""
    return base64.b64encode(data).decode()


def decoded(text: str) -> bytes:
    """Return bytes that the gateway has given; it leaves out what is empty."""
    return base64.b64decode(text)


def _tls(place: EtcdPlace) -> ssl.SSLContext:
    assert place.tls is not None
    context = ssl.create_default_context(cafile=place.tls.get("ca"))
    if "cert" in place.tls:
        context.load_cert_chain(place.tls["cert"], place.tls.get("key"))
    return context
