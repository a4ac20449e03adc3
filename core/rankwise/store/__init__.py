"""Stores: keys and values that the processes of a job share, to find each other by."""

from __future__ import annotations

from rankwise.store.base import Store
from rankwise.store.file.store import FileStore
from rankwise.store.foreign import StoreLike, as_store
from rankwise.store.memory import HashStore
from rankwise.store.prefix import PrefixStore, innermost
from rankwise.store.tcp.store import TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "StoreLike", "TCPStore", "as_store", "innermost"]
