"""What clients of a `TCPStore` want stored once they are gone: one will for each connection, the last one."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from rankwise.errors import DistStoreError
from rankwise.stores import Primitives, Table, operations


def set_with_will(store: Primitives, key: str, value: bytes, will: bytes) -> None:
    """Store a value, whatever was there; the server notes the will of its client."""
    operations.set_(store, key, value)


class Will(NamedTuple):
    """A value that is to be replaced by another one, if nobody has changed it before."""

    key: str
    value: bytes
    will: bytes


class Wills:
    """The wills of all clients."""

    def __init__(self) -> None:
        self._of: dict[bytes, Will] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def note(self, client: bytes, will: Will) -> None:
        """Note the will of a client."""
        self._of[client] = will

    def clients(self) -> set[bytes]:
        """Return whose wills there are."""
        return set(self._of)

    def carry_out(self, table: Table, client: bytes) -> None:
        """Do what a client wanted that is gone."""
        will = self._of.pop(client, None)
        if will is not None:
            with suppress(DistStoreError):  # the store is full
                operations.swap(table, *will)
