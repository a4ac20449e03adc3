"""The kinds of store that tests of all kinds go through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.servers import etcd_server, redis_server

from rankwise.store import HashStore, Store
from rankwise_stores import EtcdStore, FileStore, RedisStore, TCPStore


class MinimalStore(Store):
    """A store as a third party would begin one: nothing but what is abstract."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def peek(self, key: str) -> bytes | None:
        return self.values.get(key)

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        with self.lock:
            found = self.values.get(key)
            if found == expected:
                if desired is None:
                    self.values.pop(key, None)
                else:
                    self.values[key] = desired
            return found

    def scan(self) -> Sequence[str]:
        return list(self.values)


def client_of(stack: ExitStack, secret: bytes | None = None) -> TCPStore:
    """Return a store that another one of this process serves."""
    master = stack.enter_context(TCPStore("127.0.0.1", is_master=True, secret=secret))
    return stack.enter_context(TCPStore("127.0.0.1", master.port, secret=secret))


def redis_store(stack: ExitStack, path: Path) -> RedisStore:
    """Return a store on a Redis that is skipped where there is none."""
    return stack.enter_context(RedisStore(redis_server().url(path.name)))


def etcd_store(stack: ExitStack, path: Path) -> EtcdStore:
    """Return a store in an etcd, likewise."""
    return stack.enter_context(EtcdStore(etcd_server().url(path.name)))


PLAIN_KINDS: dict[str, Callable[[ExitStack, Path], Store]] = {
    "hash": lambda stack, path: HashStore(),
    "file": lambda stack, path: stack.enter_context(FileStore(path / "store")),
    "redis": redis_store,
    "etcd": etcd_store,
    "tcp": lambda stack, path: client_of(stack),
    "tcp master": lambda stack, path: stack.enter_context(TCPStore("127.0.0.1", is_master=True)),
    "third party": lambda stack, path: MinimalStore(),
}
