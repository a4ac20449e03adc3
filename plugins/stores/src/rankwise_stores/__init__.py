"""Stores that other processes reach: over TCP, in a shared file, on a Redis or etcd, and in other libraries' stores.

The core finds what is here by entry points: the names that programs use, `TCPStore`, `FileStore` and `as_store`, by the
group `rankwise.parts`, and `env://`, `tcp://`, `redis://` and the other schemes by the group `rankwise.rendezvous`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.backends import require_series
from rankwise.stores import later

if TYPE_CHECKING:
    from rankwise_stores.etcd_store import EtcdStore
    from rankwise_stores.file import FileStore
    from rankwise_stores.redis_store import RedisStore
    from rankwise_stores.tcp.store import TCPStore

__all__ = ["EtcdStore", "FileStore", "RedisStore", "TCPStore"]

require_series("rankwise-stores", "0.1")

#: A process has one of them, or none.
_LATER = {
    "rankwise_stores.etcd_store": ["EtcdStore"],
    "rankwise_stores.file": ["FileStore"],
    "rankwise_stores.redis_store": ["RedisStore"],
    "rankwise_stores.tcp.store": ["TCPStore"],
}
__getattr__ = later(__name__, _LATER)
