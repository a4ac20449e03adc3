"""From bytes to an object. The bytes may be hostile: they are believed only as far as they reach."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Hashable, Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from struct import Struct
from typing import Any
from uuid import UUID

import numpy as np

from rankwise.codec import dtypes
from rankwise.codec.dataclass import build
from rankwise.codec.format import COUNT, DOUBLE, LONG, MAX_DEPTH, MAX_INT_NBYTES, SIZE, TWO_DOUBLES, Code
from rankwise.errors import CodecError

__all__ = ["decode"]


def decode(data: bytes | bytearray | memoryview) -> Any:
    """Return the object that `encode` has made these bytes of.

    Raises:
        CodecError: They are not such bytes.
    """
    reader = _Reader(memoryview(data).cast("B"))
    obj = reader.read(0)
    if reader.left():
        raise CodecError(f"{reader.left()} bytes too many follow the object")
    return obj


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def left(self) -> int:
        """Return how many bytes are left."""
        return len(self.data) - self.at

    def read(self, depth: int) -> Any:
        """Read one object."""
        if depth > MAX_DEPTH:
            raise CodecError(f"the object is nested deeper than {MAX_DEPTH}")
        code = bytes(self.take(1))
        reader = _READERS.get(code)
        if reader is None:
            raise CodecError(f"{code!r} begins no object")
        return reader(self, depth)

    def take(self, nbytes: int) -> memoryview:
        """Return the next bytes, if there are so many."""
        if nbytes > self.left():
            raise CodecError(f"the object is cut short: {nbytes} bytes are announced and {self.left()} left")
        piece = self.data[self.at : self.at + nbytes]
        self.at += nbytes
        return piece

    def unpack(self, struct: Struct) -> Any:
        """Read a number."""
        return struct.unpack(self.take(struct.size))[0]

    def block(self) -> memoryview:
        """Read bytes whose number stands before them."""
        return self.take(self.unpack(SIZE))

    def text(self) -> str:
        """Read a string."""
        try:
            return str(self.block(), "utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise CodecError(f"a string is no UTF-8: {error}") from error

    def count(self, each: int = 1) -> int:
        """Read the number of items that follow, of at least `each` bytes."""
        count: int = self.unpack(COUNT)
        if count * each > self.left():
            raise CodecError(f"{count} items are announced, but {self.left()} bytes are left")
        return count

    def items(self, depth: int) -> Iterator[Any]:
        """Read the items of a container."""
        return (self.read(depth + 1) for _ in range(self.count()))

    # ------------------------------------------------------------------ one function a type

    def int_(self, depth: int) -> int:
        number: int = self.unpack(LONG)
        return number

    def big_int(self, depth: int) -> int:
        data = self.block()
        if len(data) > MAX_INT_NBYTES:
            raise CodecError(f"an integer of {len(data)} bytes is longer than {MAX_INT_NBYTES}")
        return int.from_bytes(data, "little", signed=True)

    def complex_(self, depth: int) -> complex:
        return complex(*TWO_DOUBLES.unpack(self.take(TWO_DOUBLES.size)))

    def dict_(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        count = self.count(each=2)
        for _ in range(count):
            key = _hashable(self.read(depth + 1))
            found[key] = self.read(depth + 1)
        if len(found) != count:
            raise CodecError("a dict has a key twice")
        return found

    def set_(self, depth: int) -> set[Any]:
        items = [_hashable(item) for item in self.items(depth)]
        found = set(items)
        if len(found) != len(items):
            raise CodecError("a set has an item twice")
        return found

    def array(self, depth: int) -> np.ndarray[Any, Any]:
        dtype, shape = dtypes.restore(self.read(depth + 1)), self.read(depth + 1)
        data = self.block()
        if not isinstance(shape, tuple) or len(shape) > 32 or not all(type(n) is int and n >= 0 for n in shape):
            raise CodecError(f"an array cannot have the shape {shape!r:.80}")
        if math.prod(shape) * dtype.itemsize != len(data):
            raise CodecError(f"an array of shape {shape!r:.80} and dtype {dtype} does not have {len(data)} bytes")
        try:
            return np.frombuffer(data, np.uint8).copy().view(dtype).reshape(shape)
        except (ValueError, TypeError) as error:
            raise CodecError(f"an array of shape {shape!r:.80} and dtype {dtype} cannot be: {error}") from error

    def scalar(self, depth: int) -> Any:
        array = self.array(depth)
        if array.shape != ():
            raise CodecError("a scalar has no shape")
        return array[()]

    def fraction(self, depth: int) -> Fraction:
        parts = list(self.items(depth))
        if len(parts) != 2 or not all(type(part) is int for part in parts) or not parts[1]:
            raise CodecError("a fraction has a numerator and a denominator")
        return Fraction(parts[0], parts[1])

    def decimal(self, depth: int) -> Decimal:
        try:
            return Decimal(self.text())
        except (InvalidOperation, ValueError) as error:
            raise CodecError("a decimal number cannot be read") from error

    def uuid(self, depth: int) -> UUID:
        data = self.block()
        if len(data) != 16:
            raise CodecError("a UUID has 16 bytes")
        return UUID(bytes=bytes(data))

    def timedelta(self, depth: int) -> datetime.timedelta:
        days, seconds, microseconds = (self.unpack(LONG) for _ in range(3))
        return _dated(lambda: datetime.timedelta(days, seconds, microseconds))

    def date(self, depth: int) -> datetime.date:
        text = self.text()
        return _dated(lambda: datetime.date.fromisoformat(text))

    def zoned(self, kind: type[Any]) -> Any:
        text = self.text()

        def made() -> Any:
            iso, fold, zone = text.split(" ")
            value = kind.fromisoformat(iso).replace(fold=int(fold))
            return value.replace(tzinfo=_zone(zone)) if zone else value

        return _dated(made)

    def dataclass(self, depth: int) -> Any:
        name = self.text()
        fields = self.dict_(depth)
        if not all(type(key) is str for key in fields):
            raise CodecError(f"dataclass {name!r:.80} has fields without names")
        return build(name, fields)


def _hashable(item: Any) -> Hashable:
    try:
        hash(item)
    except TypeError as error:
        raise CodecError(f"a {type(item).__name__} cannot be a key") from error
    return item  # type: ignore[no-any-return]


def _dated(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (ValueError, OverflowError, TypeError) as error:
        raise CodecError(f"a date or time cannot be read: {error}") from error


def _zone(name: str) -> datetime.tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise CodecError(f"time zone {name!r:.80} is not known here") from error


_READERS: dict[bytes, Callable[[_Reader, int], Any]] = {
    Code.NONE: lambda reader, depth: None,
    Code.TRUE: lambda reader, depth: True,
    Code.FALSE: lambda reader, depth: False,
    Code.INT: _Reader.int_,
    Code.BIG_INT: _Reader.big_int,
    Code.FLOAT: lambda reader, depth: reader.unpack(DOUBLE),
    Code.COMPLEX: _Reader.complex_,
    Code.STR: lambda reader, depth: reader.text(),
    Code.BYTES: lambda reader, depth: bytes(reader.block()),
    Code.BYTEARRAY: lambda reader, depth: bytearray(reader.block()),
    Code.LIST: lambda reader, depth: list(reader.items(depth)),
    Code.TUPLE: lambda reader, depth: tuple(reader.items(depth)),
    Code.DICT: _Reader.dict_,
    Code.SET: _Reader.set_,
    Code.FROZENSET: lambda reader, depth: frozenset(reader.set_(depth)),
    Code.ARRAY: _Reader.array,
    Code.SCALAR: _Reader.scalar,
    Code.DATETIME: lambda reader, depth: reader.zoned(datetime.datetime),
    Code.DATE: _Reader.date,
    Code.TIME: lambda reader, depth: reader.zoned(datetime.time),
    Code.TIMEDELTA: _Reader.timedelta,
    Code.DECIMAL: _Reader.decimal,
    Code.FRACTION: _Reader.fraction,
    Code.UUID: _Reader.uuid,
    Code.DATACLASS: _Reader.dataclass,
}
