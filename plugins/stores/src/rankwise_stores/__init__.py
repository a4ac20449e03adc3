"""Stores that other processes reach: over TCP, in a shared file, and in the stores of other libraries.

The core finds what is here by entry points: the names that programs use, `TCPStore`, `FileStore` and `as_store`, by the
group `rankwise.parts`, and `env://`, `tcp://` and `file://` by the group `rankwise.rendezvous`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.backends import require_series
from rankwise.stores import later

if TYPE_CHECKING:
    from rankwise_stores.file import FileStore
    from rankwise_stores.tcp.store import TCPStore

__all__ = ["FileStore", "TCPStore"]

require_series("rankwise-stores", "0.1")

#: A process has one of them, or none.
_LATER = {
    "FileStore": ("rankwise_stores.file", "FileStore"),
    "TCPStore": ("rankwise_stores.tcp.store", "TCPStore"),
}
__getattr__ = later(__name__, _LATER)
