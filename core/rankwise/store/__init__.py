"""Key-value stores: how processes that do not know each other yet find out about each other."""

from rankwise.store.base import Store
from rankwise.store.file import FileStore
from rankwise.store.hash import HashStore
from rankwise.store.prefix import PrefixStore
from rankwise.store.tcp import TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
