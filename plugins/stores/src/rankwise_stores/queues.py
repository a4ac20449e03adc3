"""Queues and barriers of every kind of store, made of the primitives.

One value holds all the items of a queue, each behind its length and its holder. An item is *lent* to the caller that
asks for it, under a token that the caller has drawn, and leaves the queue when that caller has *confirmed* it. Until
then it stays where it is: one that is released, or that nobody confirms for a while, is the first again. So an item is
never lost with the process that was to get it, and never given to two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from time import monotonic
from typing import NamedTuple

from rankwise.errors import DistStoreError
from rankwise.stores import RESERVED, Missing, Primitives, change, fits, operations

TOKEN_NBYTES = 16
#: How long an item may be lent: from when the next caller sees it so.
LEASE_S = 5.0

_NOBODY = bytes(TOKEN_NBYTES)
_HEAD_NBYTES = 4 + TOKEN_NBYTES


class _Entry(NamedTuple):
    begin: int
    end: int
    holder: bytes


def queue_push(store: Primitives, queue: str, item: bytes) -> None:
    """Put an item at the end of a queue."""
    more = _entry(item)
    change(store, queue_key(queue), lambda found: fits(f"queue {queue!r}", (found or b"") + more))


def queue_pop(store: Primitives, queue: str, token: bytes, seen: dict[bytes, float] | None = None) -> bytes | Missing:
    """Lend the first item that nobody holds, once there is one, to the token that will confirm or release it.

    `seen`: since when this caller has seen each of the tokens that hold an item.
    """
    key, seen = queue_key(queue), {} if seen is None else seen
    while True:
        items = store.peek(key) or b""
        entry = next((entry for entry in _entries(items) if _is_free(entry, seen)), None)
        if entry is None:
            return Missing(key, queue_pop, (queue, token, seen))
        if store.swap(key, items, _held(items, entry, token)) == items:
            return items[entry.begin + _HEAD_NBYTES : entry.end]


def queue_confirm(store: Primitives, queue: str, token: bytes) -> bool:
    """Let a lent item leave the queue; tell whether it was still lent to the holder of the token."""
    key, confirmed = queue_key(queue), getattr(store, "confirmed", None)
    while True:
        items = store.peek(key) or b""
        entry = _of(items, token)
        if confirmed is not None:
            # Noted before: if an exception comes between the two, the item is still found in the queue.
            confirmed.add(token) if entry is not None else confirmed.discard(token)
        if entry is None:
            return False
        if store.swap(key, items, items[: entry.begin] + items[entry.end :] or None) == items:
            return True


def queue_release(store: Primitives, queue: str, token: bytes, item: bytes | None) -> None:
    """Give a lent item back to its place, or to the front if it has been confirmed already; else do nothing.

    The item is given by a caller that has begun to confirm it.
    """
    key, confirmed = queue_key(queue), getattr(store, "confirmed", None)
    while True:
        items = store.peek(key) or b""
        entry = _of(items, token)
        if entry is not None:
            after = _held(items, entry, _NOBODY)
        elif item is not None and (confirmed is None or confirmed.discard(token)):
            after, confirmed = _entry(item) + items, None
        else:
            return
        if store.swap(key, items or None, after) == (items or None):
            return


def queue_len(store: Primitives, queue: str) -> int:
    """Count the items of a queue, those that are lent included."""
    return sum(1 for _ in _entries(store.peek(queue_key(queue)) or b""))


def queue_key(name: str) -> str:
    """Return the key under which a queue is kept."""
    return f"{RESERVED}queue/{name}"


def _entry(item: bytes) -> bytes:
    return struct.pack("<I", len(item)) + _NOBODY + item


def _entries(items: bytes) -> Iterator[_Entry]:
    begin = 0
    while begin < len(items):
        end = begin + _HEAD_NBYTES + int.from_bytes(items[begin : begin + 4], "little")
        yield _Entry(begin, end, items[begin + 4 : begin + _HEAD_NBYTES])
        begin = end


def _of(items: bytes, token: bytes) -> _Entry | None:
    return next((entry for entry in _entries(items) if entry.holder == token), None)


def _held(items: bytes, entry: _Entry, holder: bytes) -> bytes:
    return items[: entry.begin + 4] + holder + items[entry.begin + _HEAD_NBYTES :]


def _is_free(entry: _Entry, seen: dict[bytes, float]) -> bool:
    if entry.holder == _NOBODY:
        return True
    now = monotonic()
    return now - seen.setdefault(entry.holder, now) > LEASE_S


# Barriers, made of the primitives: one value tells the generation, how many have come to it, and how many shall


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

    change(store, _barrier(name), come)
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

    change(store, _barrier(name), leave)
    return barrier_wait(store, name, generation)


def _barrier(name: str) -> str:
    return f"{RESERVED}barrier/{name}"


def _barrier_state(value: bytes | None) -> tuple[int, int, int]:
    generation, come, size = map(int, (value or b"0 0 0").split())
    return generation, come, size


def barrier_lacks(store: Primitives, name: str, generation: int) -> str:
    """Tell who has come."""
    _, come, size = _barrier_state(store.peek(_barrier(name)))
    return f"barrier {name!r}, to which {come} of {size} have come"


def _item_lacks(store: Primitives, queue: str, token: bytes, seen: object = None) -> str:
    return f"an item in queue {queue!r}"


operations.LACKING.update({queue_pop: _item_lacks, barrier_wait: barrier_lacks})
operations.GIVE_UP[barrier_wait] = barrier_leave
