"""The table of a `TCPStore`'s server: keys and values, and the bound on what they may take."""

from __future__ import annotations

import os

from rankwise.errors import DistStoreError
from rankwise.store.limits import MAX_KEYS
from rankwise.store.memory import Table

__all__ = ["BoundedTable"]

_MAX_TOTAL_NBYTES = 1 << 30
#: What a key takes beside its text and its value.
_ENTRY_NBYTES = 200


class BoundedTable(Table):
    """A table that refuses to grow without end."""

    def __init__(self) -> None:
        super().__init__()
        #: Tells this table from that of a server that takes its place.
        self.identity = os.urandom(16)
        self._nbytes = 0

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        if self.peek(key) == expected:
            if expected is None and desired is not None and len(self.values) >= MAX_KEYS:
                raise DistStoreError(f"the store is full: it has {MAX_KEYS} keys")
            nbytes = self._nbytes + _nbytes_of(key, desired) - _nbytes_of(key, expected)
            if nbytes > max(self._nbytes, _MAX_TOTAL_NBYTES):
                raise DistStoreError(f"the store is full: its keys and values take {self._nbytes} bytes")
            self._nbytes = nbytes
        return super().swap(key, expected, desired)


def _nbytes_of(key: str, value: bytes | None) -> int:
    return 0 if value is None else _ENTRY_NBYTES + len(key.encode()) + len(value)
