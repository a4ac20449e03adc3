"""What each operation of a store does, written once, on three primitives.

`peek`, `swap` and `scan` are all that a kind of store must have. The functions here run where the data is: in the
caller's process for stores in memory and in files, in the server's for `TCPStore`. An operation that may have to
wait never does so here: it returns a `Missing` that tells which key must change before it is worth another look.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from rankwise.errors import DistStoreError
from rankwise.store.limits import MAX_VALUE_NBYTES, RESERVED, fits

__all__ = [
    "add",
    "append",
    "barrier",
    "barrier_leave",
    "barrier_wait",
    "check",
    "compare_set",
    "delete_key",
    "get",
    "GIVE_UP",
    "LACKING",
    "list_keys",
    "Missing",
    "multi_get",
    "multi_set",
    "num_keys",
    "peek",
    "Primitives",
    "queue_len",
    "queue_pop",
    "queue_push",
    "queue_return",
    "scan",
    "set_",
    "swap",
    "title",
    "wait",
    "wait_for_workers",
]

#: A reply that lists keys or values holds at most so many bytes; the rest is asked for again.
PAGE_NBYTES = MAX_VALUE_NBYTES

_NUMBER = re.compile(rb"-?[0-9]{1,19}\Z")


class Primitives(Protocol):
    """What every kind of store can do by itself."""

    def peek(self, key: str) -> bytes | None:
        """Return the value stored now; None if there is none."""

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        """Replace the value if it is the expected one; return what was found."""

    def scan(self) -> Sequence[str]:
        """Return all keys."""


class Missing(NamedTuple):
    """There is nothing to return yet; look again when this key has changed.

    An operation that has begun goes on with another one then.
    """

    key: str
    operation: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()


# ---------------------------------------------------------------------- the primitives, as operations


def peek(store: Primitives, key: str) -> bytes | None:
    """Return the value stored now; None if there is none."""
    return store.peek(key)


def swap(store: Primitives, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
    """Replace the value if it is the expected one; return what was found."""
    return store.swap(key, expected, desired)


def scan(store: Primitives) -> Sequence[str]:
    """Return all keys."""
    return store.scan()


# ---------------------------------------------------------------------- single keys


def set_(store: Primitives, key: str, value: bytes) -> None:
    """Store a value, whatever was there."""
    _change(store, key, lambda found: value)


def add(store: Primitives, key: str, amount: int) -> int:
    """Add to a number, which is zero where there is none; return the sum."""
    total = 0

    def plus(found: bytes | None) -> bytes:
        nonlocal total
        if found is not None and not _NUMBER.match(found):
            raise DistStoreError(f"add: the value of {key!r} is no integer: {found[:40]!r}")
        total = int(found or b"0") + amount
        if not -(1 << 63) <= total < 1 << 63:
            raise DistStoreError(f"add: {key!r} would become {total}, which needs more than 64 bits")
        return b"%d" % total

    _change(store, key, plus)
    return total


def append(store: Primitives, key: str, value: bytes) -> None:
    """Store the value behind what is there."""
    _change(store, key, lambda found: fits(f"the value of {key!r}", (found or b"") + value))


def compare_set(store: Primitives, key: str, expected: bytes, desired: bytes) -> bytes:
    """Store `desired` if `expected` is there, or, if that is empty, if nothing is; return what is there afterwards."""
    before = _change(store, key, lambda found: desired if (found or b"") == expected else found) or b""
    return desired if before == expected else before


def delete_key(store: Primitives, key: str) -> bool:
    """Remove a key; tell whether it was there."""
    return _change(store, key, lambda found: None) is not None


def _change(
    store: Primitives, key: str, new: Callable[[bytes | None], bytes | None]
) -> bytes | None:
    """Replace the value by one made from it, and return the old one."""
    found = store.peek(key)
    while True:
        seen = store.swap(key, found, new(found))
        if seen == found:
            return found
        found = seen


# ---------------------------------------------------------------------- several keys


def check(store: Primitives, keys: Sequence[str]) -> bool:
    """Tell whether all the keys are there."""
    return all(store.peek(key) is not None for key in keys)


def multi_set(store: Primitives, keys: Sequence[str], values: Sequence[bytes]) -> None:
    """Store several values."""
    for key, value in zip(keys, values, strict=True):
        set_(store, key, value)


def num_keys(store: Primitives) -> int:
    """Count the user's keys."""
    return sum(not key.startswith(RESERVED) for key in store.scan())


def list_keys(store: Primitives, after: str) -> tuple[list[str], bool]:
    """Return the user's keys behind `after` in order, as many as fit in a page, and whether these are all."""
    keys = sorted(key for key in store.scan() if not key.startswith(RESERVED))
    del keys[: bisect_right(keys, after) if after else 0]
    room = PAGE_NBYTES
    for index, key in enumerate(keys):
        room -= 4 * len(key) + 8
        if room < 0 and index:
            return keys[:index], False
    return keys, True


# ---------------------------------------------------------------------- those that wait


def get(store: Primitives, key: str) -> bytes | Missing:
    """Return a value once it is there."""
    value = store.peek(key)
    return Missing(key) if value is None else value


def wait(store: Primitives, keys: Sequence[str]) -> bool | Missing:
    """Return once all the keys are there."""
    for key in keys:
        if store.peek(key) is None:
            return Missing(key)
    return True


def multi_get(store: Primitives, keys: Sequence[str]) -> list[bytes] | Missing:
    """Return the values of the first keys, as many as fit in a page, once all the keys are there."""
    values: list[bytes] = []
    room = PAGE_NBYTES
    for key in keys:
        value = store.peek(key)
        if value is None:
            return Missing(key)
        room -= len(value) + 8
        if room >= 0 or not values:
            values.append(value)
    return values


def wait_for_workers(store: Primitives, key: str, count: int) -> int | Missing:
    """Return a counter once it is at `count` or above."""
    value = int(store.peek(key) or b"0")
    return value if value >= count else Missing(key)


# ---------------------------------------------------------------------- queues: one value holds all the items


def queue_push(store: Primitives, queue: str, item: bytes) -> None:
    """Put an item at the end of a queue."""
    more = struct.pack("<I", len(item)) + item
    _change(store, _queue(queue), lambda found: fits(f"queue {queue!r}", (found or b"") + more))


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
    _change(store, _queue(queue), lambda found: first + (found or b""))


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


# ---------------------------------------------------------------------- barriers: a generation, and who has come


def barrier(store: Primitives, name: str, size: int) -> bool | Missing:
    """Come to a barrier; return once all have come. The last to come begins the next generation."""
    mine = 0

    def come(found: bytes | None) -> bytes:
        nonlocal mine
        mine, come, expected = _barrier_state(found)
        if come and expected != size:
            raise DistStoreError(
                f"barrier {name!r}: world_size is {size} here, but {expected} for {come} that came before"
            )
        return b"%d %d %d" % ((mine + 1, 0, size) if come + 1 == size else (mine, come + 1, size))

    _change(store, _barrier(name), come)
    return barrier_wait(store, name, mine)


def barrier_wait(store: Primitives, name: str, generation: int) -> bool | Missing:
    """Return once all have come to a barrier in which we are."""
    key = _barrier(name)
    if _barrier_state(store.peek(key))[0] > generation:
        return True
    return Missing(key, barrier_wait, (name, generation))


def barrier_leave(store: Primitives, name: str, generation: int) -> bool | Missing:
    """Leave a barrier before all have come, so that it can be used again; true if they have come meanwhile."""

    def leave(found: bytes | None) -> bytes | None:
        now, come, size = _barrier_state(found)
        return b"%d %d %d" % (now, come - 1, size) if now == generation and come else found

    _change(store, _barrier(name), leave)
    return barrier_wait(store, name, generation)


def _barrier(name: str) -> str:
    return f"{RESERVED}barrier/{name}"


def _barrier_state(value: bytes | None) -> tuple[int, int, int]:
    generation, come, size = map(int, (value or b"0 0 0").split())
    return generation, come, size


# ---------------------------------------------------------------------- what a time-out says


def _lacking_keys(store: Primitives, keys: Sequence[str]) -> str:
    missing = [key for key in keys if store.peek(key) is None]
    names = ", ".join(map(repr, missing[:16])) + (f" and {len(missing) - 16} more" if len(missing) > 16 else "")
    return f"key{'s' * (len(missing) != 1)} {names}, which nobody has set"


def _lacking_ranks(store: Primitives, name: str, generation: int) -> str:
    _, come, size = _barrier_state(store.peek(_barrier(name)))
    return f"barrier {name!r}, to which {come} of {size} have come"


#: For each operation that waits, what it is waiting for.
LACKING: dict[Callable[..., Any], Callable[..., str]] = {
    get: lambda store, key: _lacking_keys(store, [key]),
    wait: _lacking_keys,
    multi_get: _lacking_keys,
    queue_pop: lambda store, queue: f"an item in queue {queue!r}",
    barrier_wait: _lacking_ranks,
    wait_for_workers: lambda store, key, count: f"clients: {int(store.peek(key) or b'0')} of {count} have joined",
}

#: For those that leave a trace while they wait, what takes it back.
GIVE_UP: dict[Callable[..., Any], Callable[..., Any]] = {barrier_wait: barrier_leave}


def title(operation: Callable[..., Any]) -> str:
    """Return the name of the method of `Store` that carries out an operation."""
    return operation.__name__.rstrip("_")
