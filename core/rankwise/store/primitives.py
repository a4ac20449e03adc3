"""What every kind of store can do by itself, and what all operations are made of."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from rankwise.errors import DistStoreError


class Primitives(Protocol):
    """What every kind of store can do by itself."""

    def peek(self, key: str) -> bytes | None:
        """Return the value stored now; None if there is none."""

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        """Replace the value if it is the expected one; return what was found."""

    def scan(self) -> Sequence[str]:
        """Return all keys."""


class Series(Sequence[str]):
    """The keys that are a prefix and a number, from 0 up to a length: those of many ranks take no list of keys."""

    def __init__(self, prefix: str, length: int) -> None:
        self.prefix, self.length = prefix, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        numbers = range(self.length)[index]
        return f"{self.prefix}{numbers}" if isinstance(numbers, int) else [f"{self.prefix}{n}" for n in numbers]

    def __iter__(self) -> Iterator[str]:
        return map(self.prefix.__add__, map(str, range(self.length)))


#: The series of no keys.
NO_KEYS = Series("", 0)


class Missing(NamedTuple):
    """There is nothing to return yet; look again when this key has changed.

    An operation that has begun goes on with another one then.
    """

    key: str
    operation: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()


def change(store: Primitives, key: str, new: Callable[[bytes | None], bytes | None]) -> bytes | None:
    """Replace the value by one made from it, and return the old one."""
    found = store.peek(key)
    while True:
        seen = store.swap(key, found, new(found))
        if seen == found:
            return found
        found = seen


# ------------------ what may be stored: the one validation of keys, values and amounts, and the bounds on them

MAX_KEY_NBYTES = 8 << 10
MAX_VALUE_NBYTES = 8 << 20
#: How many keys one request may name, and how many a `TCPStore` holds.
MAX_KEYS = 128 << 10

#: Keys that begin so are the store's own; they are neither counted nor listed.
RESERVED = "\0"


def to_key(key: str) -> str:
    """Return `key` if it can be one.

    Raises:
        TypeError: It is no string.
        ValueError: It is too long, reserved, or no text.
    """
    if not isinstance(key, str):
        raise TypeError(f"a key must be a str, not {type(key).__name__}")
    if key.startswith(RESERVED):
        raise ValueError(f"the key {key!r} is reserved: it begins with a null character")
    if len(key) > MAX_KEY_NBYTES // 4 and len(key.encode(errors="surrogatepass")) > MAX_KEY_NBYTES:
        raise ValueError(f"the key {key[:40]!r}... is longer than {MAX_KEY_NBYTES} bytes")
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the key {key!r} is no text: it has a lone surrogate") from error
    return str(key)


def to_keys(keys: Iterable[str]) -> list[str]:
    """Return the keys as a list, each one checked.

    Raises:
        TypeError: A lone string, or something that is no string among them.
        ValueError: One of them cannot be a key, or there are too many.
    """
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys must be a list of str, not {keys!r}")
    checked = [to_key(key) for key in keys]
    if len(checked) > MAX_KEYS:
        raise ValueError(f"{len(checked)} keys in one call, more than {MAX_KEYS}")
    return checked


def to_value(value: str | bytes | bytearray | memoryview) -> bytes:
    """Return a value as bytes; text is encoded as UTF-8.

    Raises:
        TypeError: It is neither text nor bytes.
        ValueError: It is too large.
    """
    if isinstance(value, str):
        value = value.encode()
    elif isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    elif not isinstance(value, bytes):
        raise TypeError(f"a value must be str or bytes, not {type(value).__name__}")
    if len(value) > MAX_VALUE_NBYTES:
        raise ValueError(f"a value of {len(value)} bytes; a store takes at most {MAX_VALUE_NBYTES}")
    return value


def to_amount(amount: int) -> int:
    """Return an amount to add, as an int of at most 64 bits.

    Raises:
        TypeError: It is no integer.
        ValueError: It needs more than 64 bits.
    """
    value = operator.index(amount)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"the amount {value} needs more than 64 bits")
    return value


def fits(what: str, value: bytes) -> bytes:
    """Return a value that has been put together from what was stored, if it is not too large.

    Raises:
        DistStoreError: It is.
    """
    if len(value) > MAX_VALUE_NBYTES:
        raise DistStoreError(f"{what} would grow to {len(value)} bytes; a store takes at most {MAX_VALUE_NBYTES}")
    return value
