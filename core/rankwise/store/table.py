"""The state behind the stores: a dictionary with the operations of a store, none of which ever waits."""

from __future__ import annotations

from collections import deque
from typing import Any

from rankwise.errors import DistStoreError, QueueEmptyError

__all__ = ["CHANGES", "HIDDEN", "MAX_KEY", "MAX_VALUE", "Table", "Wait"]

#: Longest key in characters, and longest value in bytes.
MAX_KEY = 8 << 10
MAX_VALUE = 8 << 20

#: Keys that begin so are the stores' own, and are neither listed nor counted.
HIDDEN = "\0"

#: The operations that change something.
CHANGES = frozenset(
    {"set", "add", "compare_set", "append", "multi_set", "delete_key", "queue_push", "queue_pop", "queue_try_pop"}
)


class Wait(Exception):
    """What an operation needs is not there (yet)."""


class Table:
    """All keys, values and queues of a store. A method's name is the name of its operation."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, deque[bytes]] = {}

    def run(self, op: str, args: Any) -> Any:
        """Do the operation called `op`.

        Raises:
            Wait: It needs a key or a queued value that is not there.
            DistStoreError: It is refused.
        """
        return getattr(self, f"op_{op}")(*args)

    def op_set(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def op_get(self, key: str) -> bytes:
        if key not in self.values:
            raise Wait(key)
        return self.values[key]

    def op_add(self, key: str, amount: int) -> int:
        try:
            total = int(self.values.get(key, b"0")) + amount
        except ValueError as error:
            raise DistStoreError(f"add: the value of {key!r} is not a number") from error
        self.values[key] = b"%d" % total
        return total

    def op_compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        current = self.values.get(key)
        if current == expected or (current is None and not expected):
            self.values[key] = desired
        return self.values.get(key, b"")

    def op_append(self, key: str, value: bytes) -> None:
        joined = self.values.get(key, b"") + value
        if len(joined) > MAX_VALUE:
            raise DistStoreError(f"append: the value of {key!r} would have {len(joined)} bytes, more than {MAX_VALUE}")
        self.values[key] = joined

    def op_delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None

    def op_check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def op_wait(self, keys: list[str]) -> None:
        if not self.op_check(keys):
            raise Wait(keys)

    def op_multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.op_get(key) for key in keys]

    def op_multi_set(self, keys: list[str], values: list[bytes]) -> None:
        self.values.update(zip(keys, values, strict=True))

    def op_list_keys(self, prefix: str) -> list[str]:
        found = (key[len(prefix) :] for key in self.values if key.startswith(prefix))
        return sorted(key for key in found if not key.startswith(HIDDEN))

    def op_queue_push(self, key: str, value: bytes) -> None:
        self.queues.setdefault(key, deque()).append(value)

    def op_queue_pop(self, key: str) -> bytes:
        queue = self.queues.get(key)
        if not queue:
            raise Wait(key)
        value = queue.popleft()
        if not queue:
            del self.queues[key]
        return value

    def op_queue_try_pop(self, key: str) -> bytes:
        try:
            return self.op_queue_pop(key)
        except Wait as error:
            raise QueueEmptyError(f"queue {key!r} is empty") from error

    def op_queue_len(self, key: str) -> int:
        return len(self.queues.get(key, ()))
