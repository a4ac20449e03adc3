"""`SwapStore`: a whole store on top of anything that can read, swap and list single values."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any

from rankwise.deadline import Deadline
from rankwise.errors import DistStoreError
from rankwise.store.base import Store
from rankwise.store.table import CHANGES, HIDDEN, Table, Wait

__all__ = ["SwapStore"]

_LONGEST_PAUSE_S = 0.05


class SwapStore(Store):
    """The base for stores over a foreign key-value service; it waits by asking again, ever more slowly."""

    @abstractmethod
    def _read(self, key: str) -> bytes | None:
        """Return a value, or None."""

    @abstractmethod
    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Replace `old` by `new` at once, None standing for no value; do nothing and return false if it is not."""

    @abstractmethod
    def _list(self) -> list[str]:
        """Return all keys."""

    def _call(self, op: str, *args: Any, timeout_s: float = 0.0) -> Any:
        deadline, pause_s = Deadline(timeout_s), 0.001
        while True:
            try:
                return self._once(op, args)
            except Wait:
                if deadline.expired():
                    raise
            time.sleep(min(pause_s, deadline.remaining()))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _once(self, op: str, args: tuple[Any, ...]) -> Any:
        if op == "list_keys":
            table = Table()
            table.values = dict.fromkeys(self._list(), b"")
            return table.run(op, args)
        if op.startswith("queue"):
            return self._queue(op, *args)
        keys = args[0] if isinstance(args[0], list) else [args[0]]
        while True:
            old = {key: value for key in keys if (value := self._read(key)) is not None}
            table = Table()
            table.values = dict(old)
            answer = table.run(op, args)
            if op not in CHANGES or all(self._swap(key, old.get(key), table.values.get(key)) for key in keys):
                return answer

    def _queue(self, op: str, key: str, *args: Any) -> Any:
        """Keep a whole queue in one value: each entry with its length before it."""
        place = f"{HIDDEN}queue/{key}"
        while True:
            old = self._read(place)
            table = Table()
            for value in _unpacked(old or b""):
                table.run("queue_push", (key, value))
            answer = table.run(op, (key, *args))
            new = _packed(list(table.queues.get(key, ()))) or None
            if op not in CHANGES or self._swap(place, old, new):
                return answer


def _packed(values: list[bytes]) -> bytes:
    return b"".join(len(value).to_bytes(8, "little") + value for value in values)


def _unpacked(data: bytes) -> list[bytes]:
    values = []
    while data:
        end = 8 + int.from_bytes(data[:8], "little")
        if len(data) < end:
            raise DistStoreError("a queue's value is damaged")
        values.append(data[8:end])
        data = data[end:]
    return values
