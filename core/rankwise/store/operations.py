"""What each operation of a store does, written once, on three primitives.

`peek`, `swap` and `scan` are all that a kind of store must have. The functions here run where the data is: in the
caller's process for stores in memory and in files, in the server's for `TCPStore`. An operation that may have to
wait never does so here: it returns a `Missing` that tells which key must change before it is worth another look.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from rankwise.errors import DistStoreError
from rankwise.store.primitives import MAX_VALUE_NBYTES, RESERVED, Missing, Primitives, Series, change, fits

#: A reply that lists keys or values holds at most so many bytes; the rest is asked for again.
PAGE_NBYTES = MAX_VALUE_NBYTES
#: What the last to come says where all who meet have come, see `arrive`.
FINE = b"ok"

_NUMBER = re.compile(rb"-?[0-9]{1,19}\Z")


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


def num_refused(store: Primitives) -> int:
    """Count the attempts to use the store that were refused for their job secret."""
    return getattr(store, "refused", 0)


# ---------------------------------------------------------------------- single keys


def set_(store: Primitives, key: str, value: bytes) -> None:
    """Store a value, whatever was there."""
    change(store, key, lambda found: value)


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

    change(store, key, plus)
    return total


def append(store: Primitives, key: str, value: bytes) -> None:
    """Store the value behind what is there."""
    change(store, key, lambda found: fits(f"the value of {key!r}", (found or b"") + value))


def compare_set(store: Primitives, key: str, expected: bytes, desired: bytes) -> bytes:
    """Store `desired` if `expected` is there, or, if that is empty, if nothing is; return what is there afterwards."""
    before = change(store, key, lambda found: desired if (found or b"") == expected else found) or b""
    return desired if before == expected else before


def delete_key(store: Primitives, key: str) -> bool:
    """Remove a key; tell whether it was there."""
    return change(store, key, lambda found: None) is not None


# ---------------------------------------------------------------------- several keys


def check(store: Primitives, keys: Sequence[str]) -> bool:
    """Tell whether all the keys are there."""
    return all(store.peek(key) is not None for key in keys)


def multi_set(store: Primitives, keys: Sequence[str], values: Sequence[bytes]) -> None:
    """Store several values."""
    for key, value in zip(keys, values, strict=True):
        set_(store, key, value)


def set_and_peek(
    store: Primitives, keys: Sequence[str], values: Sequence[bytes], wanted: Sequence[str]
) -> list[bytes | None]:
    """Store values, and return what is there now under other keys, as many as fit in a page; None where nothing is."""
    multi_set(store, keys, values)
    return _page(store, wanted)


def claim(store: Primitives, keys: Sequence[str], values: Sequence[bytes]) -> list[bytes]:
    """Store each value where nothing is; return what is there afterwards."""
    return [compare_set(store, key, b"", value) for key, value in zip(keys, values, strict=True)]


def _page(store: Primitives, keys: Sequence[str]) -> list[bytes | None]:
    """Return what is under the first keys, as many as fit in a page; None where nothing is."""
    found: list[bytes | None] = []
    room = PAGE_NBYTES
    for key in keys:
        there = store.peek(key)
        room -= len(there or b"") + 8
        if room < 0 and found:
            break
        found.append(there)
    return found


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


def delete_prefix(store: Primitives, prefix: str) -> int:
    """Remove all that a name with this beginning stands for; return how many of the user's keys these were."""
    count = 0
    for key in store.scan():
        reserved = key.startswith(RESERVED)
        if (key.partition("/")[2] if reserved else key).startswith(prefix):
            count += delete_key(store, key) and not reserved
    return count


# ---------------------------------------------------------------------- those that wait


def get(store: Primitives, key: str) -> bytes | Missing:
    """Return a value once it is there."""
    value = store.peek(key)
    return Missing(key) if value is None else value


def wait(store: Primitives, keys: Sequence[str], begin: int = 0) -> bool | Missing:
    """Return once all the keys are there; those before `begin` were when last looked at.

    Going on where it stood, a wait for many keys looks at each of them twice or so, not again for each that comes.
    """
    index = _first_missing(store, keys, begin)
    if index == len(keys) and begin:
        index = _first_missing(store, keys, 0)
    return True if index == len(keys) else Missing(keys[index], wait, (keys, index))


def multi_get(store: Primitives, keys: Sequence[str], begin: int = 0) -> list[bytes] | Missing:
    """Return the values of the first keys, as many as fit in a page, once all the keys are there; see `wait`."""
    missing = wait(store, keys, begin)
    if isinstance(missing, Missing):
        return missing._replace(operation=multi_get)
    values: list[bytes] = []
    room = PAGE_NBYTES
    for index, key in enumerate(keys):
        value = store.peek(key)
        if value is None:  # another kind of store may have changed since
            return Missing(key, multi_get, (keys, index))
        room -= len(value) + 8
        if room < 0 and values:
            break
        values.append(value)
    return values


def arrive(
    store: Primitives,
    keys: Sequence[str],
    values: Sequence[bytes],
    counter: str,
    count: int,
    verdict: str,
    forget: Sequence[str],
    prefix: str,
    length: int,
) -> list[bytes | None] | Missing:
    """Store values, come to a place where `count` meet, and return what is said there, and of a `Series` a page.

    The last to come says `FINE`, unless somebody has said something else before, and removes the keys that begin as
    those that nobody needs any more.
    """
    multi_set(store, keys, values)
    if add(store, counter, 1) == count and compare_set(store, verdict, b"", FINE) == FINE and forget:
        for key in [key for key in store.scan() if key.startswith(tuple(forget))]:
            delete_key(store, key)
    return arrived(store, verdict, prefix, length)


def arrived(store: Primitives, verdict: str, prefix: str, length: int) -> list[bytes | None] | Missing:
    """Return the verdict once there is one, and of the series a page."""
    if store.peek(verdict) is None:
        return Missing(verdict, arrived, (verdict, prefix, length))
    return _page(store, [verdict, *Series(prefix, length)])


def _first_missing(store: Primitives, keys: Sequence[str], begin: int) -> int:
    return next((index for index in range(begin, len(keys)) if store.peek(keys[index]) is None), len(keys))


# ---------------------------------------------------------------------- what a time-out says


def _lacking_keys(store: Primitives, keys: Sequence[str]) -> str:
    missing = [key for key in keys if store.peek(key) is None]
    names = ", ".join(map(repr, missing[:16])) + (f" and {len(missing) - 16} more" if len(missing) > 16 else "")
    return f"key{'s' * (len(missing) != 1)} {names}, which nobody has set"


#: For each operation that waits, what it is waiting for. Here and below another distribution adds its own.
LACKING: dict[Callable[..., Any], Callable[..., str]] = {
    get: lambda store, key: _lacking_keys(store, [key]),
    arrived: lambda store, verdict, prefix, length: _lacking_keys(store, [verdict]),
    wait: lambda store, keys, begin=0: _lacking_keys(store, keys),
    multi_get: lambda store, keys, begin=0: _lacking_keys(store, keys),
}

#: For those that leave a trace while they wait, what takes it back.
GIVE_UP: dict[Callable[..., Any], Callable[..., Any]] = {}


def waited_for(args: Sequence[Any]) -> str:
    """Return what an operation waits for, as far as its arguments tell."""
    return f"{', '.join(repr(arg) for arg in args if not isinstance(arg, bytes)):.200}"


def title(operation: Callable[..., Any]) -> str:
    """Return the name of the method of `Store` that carries out an operation."""
    return operation.__name__.rstrip("_")
