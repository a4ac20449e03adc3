"""Objects to bytes: one function a type, chosen by the exact type of each value."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from rankwise.basics.arguments import with_article
from rankwise.basics.arrays import as_bytes
from rankwise.codec.classes import Registered, register
from rankwise.codec.dtypes import dtype_spec
from rankwise.codec.layout import (
    MAGIC,
    MAX_DEPTH,
    MAX_INT_BYTES,
    MAX_ITEMS,
    NUMBER_RUNS,
    RUN_MIN,
    Refused,
    Tag,
    cannot_travel,
    layout_of,
)
from rankwise.codec.values import ValueType, value_type_of

_HEAD = layout_of("BQ").pack
_INT = layout_of("Bq").pack
_FLOAT = layout_of("Bd").pack
_COMPLEX = layout_of("Bdd").pack


def encode(obj: Any) -> bytes:
    """Return `obj` as bytes that `decode` turns back into an equal object of exactly the same types.

    Raises:
        TypeError: Something in it is of a type that does not travel; the message says where it is.
        ValueError: It is nested too deep (perhaps it contains itself), holds too many items, or too wide an int.
    """
    encoder = _Encoder()
    try:
        encoder.put(obj)
    except Refused as refused:
        raise refused.error() from None
    return b"".join(encoder.parts)


class _Encoder:
    """The parts of one encoded object so far; big buffers are not copied until all parts are joined."""

    __slots__ = ("depth", "items", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes | bytearray | memoryview] = [MAGIC]
        self.depth = 0
        self.items = 0

    def put(self, obj: Any) -> None:
        """Append one value."""
        write = _WRITERS.get(type(obj))
        if write is None:
            write = _writer_of(type(obj), obj)
        write(self, obj)

    def open(self, items: int) -> None:
        """Go one level down, into a container of so many items; the caller comes up again."""
        self.count(items)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Refused(ValueError, f"is nested deeper than {MAX_DEPTH} levels; does it contain itself?")

    def count(self, items: int) -> None:
        """Add to the number of items."""
        self.items += items
        if self.items > MAX_ITEMS:
            raise Refused(ValueError, f"brings the number of items over {MAX_ITEMS}; send arrays")


_Writer: TypeAlias = Callable[[_Encoder, Any], None]


def _write_none(encoder: _Encoder, _: None) -> None:
    encoder.parts.append(b"N")


def _write_bool(encoder: _Encoder, value: bool) -> None:
    encoder.parts.append(b"T" if value else b"F")


def _write_int(encoder: _Encoder, value: int) -> None:
    if -(2**63) <= value < 2**63:
        encoder.parts.append(_INT(Tag.INT, value))
        return
    nbytes = value.bit_length() // 8 + 1
    if nbytes > MAX_INT_BYTES:
        raise Refused(ValueError, f"is an int of more than {8 * MAX_INT_BYTES} bits")
    encoder.parts += (_HEAD(Tag.BIG_INT, nbytes), value.to_bytes(nbytes, "little", signed=True))


def _write_float(encoder: _Encoder, value: float) -> None:
    encoder.parts.append(_FLOAT(Tag.FLOAT, value))


def _write_complex(encoder: _Encoder, value: complex) -> None:
    encoder.parts.append(_COMPLEX(Tag.COMPLEX, value.real, value.imag))


def _write_str(encoder: _Encoder, value: str) -> None:
    # File names that are no valid text reach Python with lone surrogates, and shall reach the other rank so.
    raw = value.encode("utf-8", "surrogatepass")
    encoder.parts += (_HEAD(Tag.STR, len(raw)), raw)


def _write_bytes(encoder: _Encoder, value: bytes | bytearray) -> None:
    tag = Tag.BYTES if type(value) is bytes else Tag.BYTEARRAY
    encoder.parts += (_HEAD(tag, len(value)), value)


def _write_sequence(encoder: _Encoder, value: list[Any] | tuple[Any, ...]) -> None:
    if len(value) >= RUN_MIN and _write_numbers(encoder, value):
        return
    encoder.open(len(value))
    encoder.parts.append(_HEAD(Tag.LIST if type(value) is list else Tag.TUPLE, len(value)))
    put = encoder.put
    index = 0
    try:
        for index, item in enumerate(value):  # noqa: B007 - the handler needs to know how far it came
            put(item)
    except Refused as refused:
        refused.places.append(f"[{index}]")
        raise
    encoder.depth -= 1


def _write_numbers(encoder: _Encoder, value: list[Any] | tuple[Any, ...]) -> bool:
    """Write a sequence of floats alone, or of ints of 64 bits alone, as packed numbers; else do nothing."""
    tag = NUMBER_RUNS.get((type(value), type(value[0])))
    if tag is None or len(set(map(type, value))) > 1:
        return False
    try:
        packed = np.array(value, "<f8" if type(value[0]) is float else "<i8")
    except OverflowError:
        return False
    encoder.count(len(value))
    encoder.parts += (_HEAD(tag, len(value)), as_bytes(packed))
    return True


def _write_set(encoder: _Encoder, value: set[Any] | frozenset[Any]) -> None:
    encoder.open(len(value))
    encoder.parts.append(_HEAD(Tag.SET if type(value) is set else Tag.FROZENSET, len(value)))
    try:
        for item in value:
            encoder.put(item)
    except Refused as refused:
        refused.places.append("<member>")
        raise
    encoder.depth -= 1


def _write_dict(encoder: _Encoder, value: dict[Any, Any]) -> None:
    encoder.open(2 * len(value))
    encoder.parts.append(_HEAD(Tag.DICT, len(value)))
    put = encoder.put
    key = None
    try:
        for key, item in value.items():
            put(key)
            put(item)
    except Refused as refused:
        refused.places.append(_place_of(key))
        raise
    encoder.depth -= 1


def _write_array(encoder: _Encoder, value: np.ndarray[Any, Any]) -> None:
    spec = _or_refuse(dtype_spec, value.dtype)
    if value.dtype.itemsize == 0:
        encoder.count(value.size)
    encoder.open(0)
    encoder.parts.append(layout_of(f"BB{value.ndim}Q").pack(Tag.ARRAY, value.ndim, *value.shape))
    encoder.put(spec)
    encoder.depth -= 1
    if value.nbytes:
        encoder.parts.append(as_bytes(value))


def _write_dataclass(encoder: _Encoder, value: Any) -> None:
    entry: Registered = _or_refuse(register, type(value))
    encoder.open(len(entry.names))
    encoder.parts.append(entry.header)
    for name in entry.names:
        try:
            encoder.put(getattr(value, name))
        except Refused as refused:
            refused.places.append(f".{name}")
            raise
        except AttributeError:
            kind = with_article(type(value).__qualname__)
            raise Refused(TypeError, f"is {kind} without a value for its {name!r}") from None
    encoder.depth -= 1


def _write_value(encoder: _Encoder, value: Any, code: int, entry: ValueType) -> None:
    payload = _or_refuse(entry.plain, value)
    encoder.open(0)
    encoder.parts.append(bytes((Tag.VALUE, code)))
    encoder.put(payload)
    encoder.depth -= 1


_WRITERS: dict[type, _Writer] = {
    type(None): _write_none,
    bool: _write_bool,
    int: _write_int,
    float: _write_float,
    complex: _write_complex,
    str: _write_str,
    bytes: _write_bytes,
    bytearray: _write_bytes,
    list: _write_sequence,
    tuple: _write_sequence,
    set: _write_set,
    frozenset: _write_set,
    dict: _write_dict,
    np.ndarray: _write_array,
}


def _writer_of(kind: type, obj: Any) -> _Writer:
    """Return the writer of a type that is not one of Python's own, and remember it where there are few such types."""
    if "__dataclass_fields__" in vars(kind):
        return _write_dataclass
    found = value_type_of(kind)
    if found is None:
        raise cannot_travel(obj)
    code, entry = found
    return _WRITERS.setdefault(kind, partial(_write_value, code=code, entry=entry))


def _or_refuse(function: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return function(argument)
    except TypeError as error:
        raise Refused(TypeError, f"cannot be encoded: {error}") from None


def _place_of(key: Any) -> str:
    """Return how to name a dict's entry, or its key where it is that which does not travel."""
    try:
        _Encoder().put(key)
        # Python does not spell out ints of more than some thousands of digits, and each version says so otherwise.
        if type(key) is int:
            repr(key)
        return f"[{reprlib.repr(key)}]"
    except Refused:
        return "<key>"
    except ValueError:
        return "<wide int>"
