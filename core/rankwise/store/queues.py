"""Queues, made of the primitives: one value holds all the items of a queue, each behind its length."""

from __future__ import annotations

import struct

from rankwise.store.limits import RESERVED, fits
from rankwise.store.primitives import Missing, Primitives, change

__all__ = ["queue_len", "queue_pop", "queue_push", "queue_return"]


def queue_push(store: Primitives, queue: str, item: bytes) -> None:
    """Put an item at the end of a queue."""
    more = struct.pack("<I", len(item)) + item
    change(store, _queue(queue), lambda found: fits(f"queue {queue!r}", (found or b"") + more))


def queue_pop(store: Primitives, queue: str) -> bytes | Missing:
    """Take the first item of a queue once there is one."""
    key = _queue(queue)
    while True:
        items = store.peek(key)
        if not items:
            return Missing(key)
        end = 4 + _item_nbytes(items, 0)
        if store.swap(key, items, items[end:] or None) == items:
            return items[4:end]


def queue_return(store: Primitives, queue: str, item: bytes) -> None:
    """Put an item back at the front of a queue: whoever took it could not be told."""
    first = struct.pack("<I", len(item)) + item
    change(store, _queue(queue), lambda found: first + (found or b""))


def queue_len(store: Primitives, queue: str) -> int:
    """Count the items of a queue."""
    items, offset, count = store.peek(_queue(queue)) or b"", 0, 0
    while offset < len(items):
        offset += 4 + _item_nbytes(items, offset)
        count += 1
    return count


def _queue(name: str) -> str:
    return f"{RESERVED}queue/{name}"


def _item_nbytes(items: bytes, offset: int) -> int:
    return int.from_bytes(items[offset : offset + 4], "little")
