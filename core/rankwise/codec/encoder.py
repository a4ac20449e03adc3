"""From an object to bytes."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np

from rankwise.arrays import as_bytes
from rankwise.codec import dtypes
from rankwise.codec.dataclass import field_names, name_of
from rankwise.codec.format import COUNT, DOUBLE, LONG, MAX_DEPTH, MAX_INT_NBYTES, SIZE, TWO_DOUBLES, Code

__all__ = ["encode"]

Pieces = list[bytes | memoryview]
Writer = Callable[[Any, Pieces, int], None]


def encode(obj: Any) -> bytes:
    """Return an object as bytes.

    Raises:
        TypeError: It is, or holds, an object of a type that does not travel; the message says where.
        ValueError: It is nested too deep, or holds itself.
    """
    pieces: Pieces = []
    try:
        _write(obj, pieces, 0)
    except _DoesNotTravelError as error:
        raise TypeError(str(error)) from None
    return b"".join(pieces)


class _DoesNotTravelError(Exception):
    """Collects, on its way up, where in the object the trouble is."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def __str__(self) -> str:
        return f"obj{''.join(reversed(self.path))}: {self.reason}"


def _write(obj: Any, pieces: Pieces, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"the object is nested deeper than {MAX_DEPTH}, or holds itself")
    writer = _WRITERS.get(type(obj))
    if writer is not None:
        writer(obj, pieces, depth)
    elif isinstance(obj, np.generic):
        _write_array(Code.SCALAR, np.asarray(obj), pieces, depth)
    elif dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        _write_dataclass(obj, pieces, depth)
    else:
        raise _DoesNotTravelError(_why_not(obj))


def _why_not(obj: Any) -> str:
    name = f"{type(obj).__module__}.{type(obj).__qualname__}"
    if name.startswith("cupy."):
        return "a CuPy array does not travel as an object; use the array collectives, or send .get()"
    return f"an object of type {name} does not travel; pass pickle=True on all ranks if they trust each other"


def _write_int(obj: int, pieces: Pieces, depth: int) -> None:
    if -(1 << 63) <= obj < 1 << 63:
        pieces.append(Code.INT + LONG.pack(obj))
        return
    nbytes = obj.bit_length() // 8 + 1
    if nbytes > MAX_INT_NBYTES:
        raise _DoesNotTravelError(f"an integer of {nbytes} bytes is longer than {MAX_INT_NBYTES}")
    pieces.append(Code.BIG_INT + SIZE.pack(nbytes) + obj.to_bytes(nbytes, "little", signed=True))


def _write_text(code: bytes, text: str, pieces: Pieces) -> None:
    # Lone surrogates are what os.fsdecode makes of file names that are not UTF-8.
    data = text.encode("utf-8", "surrogatepass")
    pieces.append(code + SIZE.pack(len(data)))
    pieces.append(data)


def _write_bytes(code: bytes, data: bytes | bytearray, pieces: Pieces) -> None:
    pieces.append(code + SIZE.pack(len(data)))
    pieces.append(bytes(data))


def _write_items(code: bytes, items: Iterable[Any], count: int, pieces: Pieces, depth: int) -> None:
    pieces.append(code + COUNT.pack(count))
    for index, item in enumerate(items):
        try:
            _write(item, pieces, depth + 1)
        except _DoesNotTravelError as error:
            error.path.append(f"[{index}]" if code in (Code.LIST, Code.TUPLE) else "{...}")
            raise


def _write_dict(obj: dict[Any, Any], pieces: Pieces, depth: int) -> None:
    pieces.append(Code.DICT + COUNT.pack(len(obj)))
    for key, value in obj.items():
        try:
            _write(key, pieces, depth + 1)
            _write(value, pieces, depth + 1)
        except _DoesNotTravelError as error:
            error.path.append(f"[{key!r:.80}]")
            raise


def _write_array(code: bytes, array: np.ndarray[Any, Any], pieces: Pieces, depth: int) -> None:
    try:
        described = dtypes.describe(array.dtype)
    except TypeError as error:
        raise _DoesNotTravelError(f"{error}; pass pickle=True on all ranks if they trust each other") from None
    pieces.append(code)
    _write(described, pieces, depth)
    _write(array.shape, pieces, depth)
    data = as_bytes(np.ascontiguousarray(array))
    pieces.append(SIZE.pack(data.nbytes))
    pieces.append(data)


def _write_timedelta(obj: datetime.timedelta, pieces: Pieces, depth: int) -> None:
    pieces.append(Code.TIMEDELTA + LONG.pack(obj.days) + LONG.pack(obj.seconds) + LONG.pack(obj.microseconds))


def _write_zoned(code: bytes, obj: Any, pieces: Pieces) -> None:
    """Write a date or time as text, and beside it what the text does not tell: the zone's name and the fold."""
    zone = getattr(obj.tzinfo, "key", "") or ""
    if obj.tzinfo is not None and not zone and type(obj.tzinfo) is not datetime.timezone:
        raise _DoesNotTravelError(f"a time zone of type {type(obj.tzinfo).__qualname__} does not travel")
    text = obj.replace(tzinfo=None).isoformat() if zone else obj.isoformat()
    _write_text(code, f"{text} {obj.fold} {zone}", pieces)


def _write_dataclass(obj: Any, pieces: Pieces, depth: int) -> None:
    names = field_names(type(obj))
    _write_text(Code.DATACLASS, name_of(type(obj)), pieces)
    pieces.append(COUNT.pack(len(names)))
    for name in names:
        try:
            _write(name, pieces, depth + 1)
            _write(getattr(obj, name), pieces, depth + 1)
        except _DoesNotTravelError as error:
            error.path.append(f".{name}")
            raise


_WRITERS: dict[type, Writer] = {
    type(None): lambda obj, pieces, depth: pieces.append(Code.NONE),
    bool: lambda obj, pieces, depth: pieces.append(Code.TRUE if obj else Code.FALSE),
    int: _write_int,
    float: lambda obj, pieces, depth: pieces.append(Code.FLOAT + DOUBLE.pack(obj)),
    complex: lambda obj, pieces, depth: pieces.append(Code.COMPLEX + TWO_DOUBLES.pack(obj.real, obj.imag)),
    str: lambda obj, pieces, depth: _write_text(Code.STR, obj, pieces),
    bytes: lambda obj, pieces, depth: _write_bytes(Code.BYTES, obj, pieces),
    bytearray: lambda obj, pieces, depth: _write_bytes(Code.BYTEARRAY, obj, pieces),
    list: lambda obj, pieces, depth: _write_items(Code.LIST, obj, len(obj), pieces, depth),
    tuple: lambda obj, pieces, depth: _write_items(Code.TUPLE, obj, len(obj), pieces, depth),
    set: lambda obj, pieces, depth: _write_items(Code.SET, obj, len(obj), pieces, depth),
    frozenset: lambda obj, pieces, depth: _write_items(Code.FROZENSET, obj, len(obj), pieces, depth),
    dict: _write_dict,
    np.ndarray: lambda obj, pieces, depth: _write_array(Code.ARRAY, obj, pieces, depth),
    datetime.datetime: lambda obj, pieces, depth: _write_zoned(Code.DATETIME, obj, pieces),
    datetime.time: lambda obj, pieces, depth: _write_zoned(Code.TIME, obj, pieces),
    datetime.date: lambda obj, pieces, depth: _write_text(Code.DATE, obj.isoformat(), pieces),
    datetime.timedelta: _write_timedelta,
    Decimal: lambda obj, pieces, depth: _write_text(Code.DECIMAL, str(obj), pieces),
    Fraction: lambda obj, pieces, depth: _write_items(
        Code.FRACTION, (obj.numerator, obj.denominator), 2, pieces, depth
    ),
    UUID: lambda obj, pieces, depth: _write_bytes(Code.UUID, obj.bytes, pieces),
}
