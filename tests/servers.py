"""Servers of Redis and etcd for tests, which start their own; without the programs such tests are skipped."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
import redis
from tests.processes import free_port, wait_until

from rankwise_stores.etcd_gateway import Gateway, decoded, encoded
from rankwise_stores.server_urls import etcd_place

#: How long a server may take to start or to end, on a machine that does much else.
_PATIENCE_S = 60.0
#: As etcd takes values as large as any store's only if it is told so.
_ETCD_LARGEST_NBYTES = 40 << 20


def needed(program: str) -> str:
    """Return the path of a program, or skip the test: `apt-get install redis-server etcd-server` installs both."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


class Server:
    """A server that can be stopped, and started again with what it has kept.

    Args:
        folder: Where it keeps what it has to keep.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def words(self) -> list[str]:
        """Return the command line."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Tell whether it answers."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, on the port that it has had before, or else on a free one."""
        again = self.port != 0
        for _ in range(1 if again else 5):  # another process may take the port first
            self.port = self.port if again else free_port()
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(self.words(), stdout=log, stderr=log, cwd=self.folder)
            wait_until(lambda: self.is_ready() or self._process.poll() is not None, _PATIENCE_S)
            if self._process.poll() is None and self.is_ready():
                return
            self.stop()
        raise RuntimeError((self.folder / "log").read_text())

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End it, at once unless a milder signal is given."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_PATIENCE_S)
            self._process = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stored_keys(self) -> list[str]:
        """Return the names of all keys that it holds."""
        raise NotImplementedError

    def url(self, prefix: str) -> str:
        """Return where ranks may meet."""
        raise NotImplementedError

    def says(self, words: bytes, expected: bytes) -> bool:
        """Tell whether the answer to something has some words."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                sock.sendall(words)
                return expected in sock.recv(4096)
        except OSError:
            return False


class RedisServer(Server):
    """A Redis.

    Args:
        folder: Where it keeps what it has to keep.
        password: What users must say, if anything.
        keeps: Whether what it holds outlives it.
    """

    def __init__(self, folder: Path, password: str = "", keeps: bool = True) -> None:
        super().__init__(folder)
        self.password, self.keeps = password, keeps

    def words(self) -> list[str]:
        words = [needed("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        words += ["--unixsocket", str(self.folder / "socket"), "--dir", str(self.folder)]
        words += ["--appendonly", "yes" if self.keeps else "no", "--appendfsync", "always" if self.keeps else "no"]
        return words + (["--requirepass", self.password] if self.password else [])

    def is_ready(self) -> bool:
        return self.says(b"PING\r\n", b"NOAUTH" if self.password else b"PONG")

    def stored_keys(self) -> list[str]:
        """Return the names of all keys that it holds."""
        with redis.Redis(port=self.port, password=self.password or None) as client:
            return [key.decode() for key in client.scan_iter()]

    def url(self, prefix: str) -> str:
        """Return where ranks may meet."""
        return f"redis://127.0.0.1:{self.port}/0?prefix={prefix}"


class EtcdServer(Server):
    """An etcd with one member."""

    def words(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{free_port()}"
        words = [needed("etcd"), "--data-dir", str(self.folder / "data"), "--log-outputs", "stderr"]
        words += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        words += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        return [*words, "--unsafe-no-fsync", "--max-request-bytes", str(_ETCD_LARGEST_NBYTES)]

    def is_ready(self) -> bool:
        return self.says(b"GET /health HTTP/1.0\r\n\r\n", b'"health":"true"')

    def stored_keys(self) -> list[str]:
        """Return the names of all keys that it holds."""
        gateway = Gateway(etcd_place(self.url("any")))
        everything = {"key": encoded(b"\0"), "range_end": encoded(b"\0"), "keys_only": True}
        found = gateway.ask("/v3/kv/range", everything, _PATIENCE_S)
        gateway.disconnect()
        return [decoded(each["key"]).decode() for each in found.get("kvs", [])]

    def url(self, prefix: str) -> str:
        """Return where ranks may meet."""
        return f"etcd://127.0.0.1:{self.port}/{prefix}"


@cache
def redis_server() -> RedisServer:
    """Return a Redis that all tests of this process share, each with a prefix of its own."""
    needed("redis-server")
    return _shared(RedisServer)


@cache
def etcd_server() -> EtcdServer:
    """Return an etcd that all tests of this process share, each with a prefix of its own."""
    needed("etcd")
    return _shared(EtcdServer)


def _shared(kind: type[Server]) -> Server:
    folder, pid = Path(tempfile.mkdtemp(prefix="rankwise-server-")), os.getpid()
    server = kind(folder)
    server.start()

    def end() -> None:
        if os.getpid() == pid:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server
