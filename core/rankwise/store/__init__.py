"""Stores: keys and values that the processes of a job share, to find each other by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.basics.loading import later
from rankwise.store.base import Store
from rankwise.store.prefix import PrefixStore, innermost

if TYPE_CHECKING:
    from rankwise.store.file import FileStore
    from rankwise.store.foreign import StoreLike, as_store
    from rankwise.store.memory import HashStore
    from rankwise.store.tcp.store import TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "StoreLike", "TCPStore", "as_store", "innermost"]

#: A process has one store or two, and seldom two kinds of them.
_LATER = {
    "store.file": "FileStore",
    "store.foreign": "StoreLike, as_store",
    "store.memory": "HashStore",
    "store.tcp.store": "TCPStore",
}
__getattr__ = later(__name__, _LATER)
