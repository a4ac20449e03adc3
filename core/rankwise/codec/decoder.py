"""Bytes to objects. The bytes may be anything; whatever they announce is held against how many of them there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from struct import error as StructError
from time import perf_counter, thread_time
from typing import Any, NoReturn

import numpy as np

from rankwise.basics.arrays import as_bytes
from rankwise.codec.classes import find
from rankwise.codec.dtypes import dtype_from_spec
from rankwise.codec.layout import (
    MAGIC,
    MAX_DEPTH,
    MAX_INT_BYTES,
    MAX_ITEMS,
    NUMBER_RUNS,
    DecodeError,
    Tag,
    layout_of,
)
from rankwise.codec.values import value_type_by_code

_LENGTH = layout_of("Q").unpack_from
_INT = layout_of("q").unpack_from
_FLOAT = layout_of("d").unpack_from
_COMPLEX = layout_of("dd").unpack_from


def decode(data: bytes | bytearray | memoryview) -> Any:
    """Return the object that `encode` turned into `data`; nothing in it shares memory with `data`.

    Raises:
        DecodeError: The bytes are no encoded object, or one that cannot be made here (a dataclass that this process
            has not registered, a dtype or time zone that it does not have).
    """
    decoder = _Decoder(memoryview(data).cast("B"))
    try:
        return decoder.whole()
    except (DecodeError, MemoryError):
        raise
    except (StructError, IndexError) as error:
        raise DecodeError("the encoded object is cut short") from error
    except Exception as error:
        # Constructors have many ways to say no, and keys that are dataclasses hash and compare as their class says.
        raise DecodeError(f"malformed object before byte {decoder.pos}: {str(error)[:300]}") from error


class _Decoder:
    """A place in the bytes, and how deep and how many items it went so far."""

    __slots__ = ("building", "data", "depth", "end", "items", "pos")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.end = len(data)
        self.pos = 0
        self.depth = 0
        self.items = 0
        self.building = _Building(self.end)

    def whole(self) -> Any:
        """Read the one object that the bytes should be."""
        start = bytes(self.data[: len(MAGIC)])
        if start != MAGIC:
            what = "a pickle, which is never loaded here" if start[:1] == b"\x80" else "no encoded object"
            raise DecodeError(f"what arrived is {what} (or from another version of rankwise)")
        self.pos = len(MAGIC)
        value = self.value()
        if self.pos != self.end:
            raise DecodeError(f"{self.end - self.pos} bytes follow after the encoded object")
        return value

    def value(self) -> Any:
        """Read one value."""
        tag = self.data[self.pos]
        self.pos += 1
        return _READERS[tag](self)

    def length(self, item_nbytes: int) -> int:
        """Read how many items follow, of at least so many bytes each."""
        (count,) = _LENGTH(self.data, self.pos)
        self.pos += 8
        if count * item_nbytes > self.end - self.pos:
            raise DecodeError(f"{count} items are announced where {self.end - self.pos} bytes follow")
        return int(count)

    def take(self, nbytes: int) -> memoryview:
        """Read so many bytes."""
        start = self.pos
        if nbytes > self.end - start:
            raise DecodeError(f"{nbytes} bytes are announced where {self.end - start} follow")
        self.pos = start + nbytes
        return self.data[start : self.pos]

    def block(self) -> memoryview:
        """Read a length, and so many bytes."""
        (nbytes,) = _LENGTH(self.data, self.pos)
        self.pos += 8
        return self.take(nbytes)

    def open(self, items: int) -> None:
        """Go one level down, into a container of so many items; the caller comes up again."""
        self.count(items)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise DecodeError(f"the encoded object is nested deeper than {MAX_DEPTH} levels")

    def count(self, items: int) -> None:
        """Add to the number of items."""
        self.items += items
        if self.items > MAX_ITEMS:
            raise DecodeError(f"the encoded object holds more than {MAX_ITEMS} items")


def _read_int(decoder: _Decoder) -> int:
    (value,) = _INT(decoder.data, decoder.pos)
    decoder.pos += 8
    return value  # type: ignore[no-any-return]


def _read_float(decoder: _Decoder) -> float:
    (value,) = _FLOAT(decoder.data, decoder.pos)
    decoder.pos += 8
    return value  # type: ignore[no-any-return]


def _read_complex(decoder: _Decoder) -> complex:
    real, imag = _COMPLEX(decoder.data, decoder.pos)
    decoder.pos += 16
    return complex(real, imag)


def _read_big_int(decoder: _Decoder) -> int:
    raw = decoder.block()
    if len(raw) > MAX_INT_BYTES:
        raise DecodeError(f"an int of more than {8 * MAX_INT_BYTES} bits")
    return int.from_bytes(raw, "little", signed=True)


def _read_str(decoder: _Decoder) -> str:
    return str(decoder.block(), "utf-8", "surrogatepass")


def _read_list(decoder: _Decoder) -> list[Any]:
    count = decoder.length(1)
    decoder.open(count)
    value = decoder.value
    items = [value() for _ in range(count)]
    decoder.depth -= 1
    return items


def _read_set(decoder: _Decoder) -> set[Any]:
    start = decoder.pos
    members = _read_list(decoder)
    made = decoder.building.set_of(members, decoder.pos - start)
    if len(made) != len(members):
        raise DecodeError("a set holds the same member twice")
    return made


def _read_dict(decoder: _Decoder) -> dict[Any, Any]:
    count = decoder.length(2)
    decoder.open(2 * count)
    items = _few_items(decoder, count) if count <= _FEW else _many_items(decoder, count, {})
    if len(items) != count:
        raise DecodeError("a dict holds the same key twice")
    decoder.depth -= 1
    return items


def _few_items(decoder: _Decoder, count: int) -> dict[Any, Any]:
    """Read items into a dict one by one, for as long as their keys are plain or all of them is short."""
    value, data, short = decoder.value, decoder.data, decoder.pos + _SHORT_NBYTES
    items: dict[Any, Any] = {}
    for done in range(count):
        if data[decoder.pos] not in _PLAIN and decoder.pos > short:
            return _many_items(decoder, count - done, items)
        key = value()
        items[key] = value()
    return items


def _many_items(decoder: _Decoder, count: int, items: dict[Any, Any]) -> dict[Any, Any]:
    """Return a dict of some items, and others that follow."""
    value = decoder.value
    both = [value() for _ in range(2 * count)]
    return decoder.building.dict_of([*items, *both[::2]], [*items.values(), *both[1::2]])


def _read_numbers(decoder: _Decoder, container: type, element: type) -> list[Any] | tuple[Any, ...]:
    count = decoder.length(8)
    decoder.count(count)
    numbers = np.frombuffer(decoder.take(8 * count), "<f8" if element is float else "<i8").tolist()
    return numbers if container is list else tuple(numbers)


def _read_array(decoder: _Decoder) -> np.ndarray[Any, Any]:
    ndim = decoder.take(1)[0]
    shape = layout_of(f"{ndim}Q").unpack(decoder.take(8 * ndim))
    decoder.open(0)
    dtype = dtype_from_spec(decoder.value())
    decoder.depth -= 1
    if dtype.subdtype is not None:
        raise DecodeError("the dtype of an array is that of a part of it")
    count = math.prod(shape)
    if dtype.itemsize == 0:
        decoder.count(count)
    memory = decoder.take(count * dtype.itemsize)
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype)
    if memory:
        as_bytes(array)[:] = memory
    return array


def _read_dataclass(decoder: _Decoder) -> Any:
    entry = find(_read_str(decoder))
    decoder.open(len(entry.names))
    value: Any = object.__new__(entry.cls)
    for name in entry.names:
        object.__setattr__(value, name, decoder.value())
    decoder.depth -= 1
    return value


def _read_value(decoder: _Decoder) -> Any:
    entry = value_type_by_code(decoder.take(1)[0])
    decoder.open(0)
    payload = decoder.value()
    decoder.depth -= 1
    return entry.build(payload)


def _unknown(decoder: _Decoder) -> NoReturn:
    raise DecodeError(f"byte {decoder.pos - 1} is {decoder.data[decoder.pos - 1]:#04x}, which begins no value")


_KNOWN: dict[int, Callable[[_Decoder], Any]] = {
    Tag.NONE: lambda _: None,
    Tag.TRUE: lambda _: True,
    Tag.FALSE: lambda _: False,
    Tag.INT: _read_int,
    Tag.FLOAT: _read_float,
    Tag.COMPLEX: _read_complex,
    Tag.BIG_INT: _read_big_int,
    Tag.STR: _read_str,
    Tag.BYTES: lambda decoder: bytes(decoder.block()),
    Tag.BYTEARRAY: lambda decoder: bytearray(decoder.block()),
    Tag.LIST: _read_list,
    Tag.TUPLE: lambda decoder: tuple(_read_list(decoder)),
    Tag.SET: _read_set,
    Tag.FROZENSET: lambda decoder: frozenset(_read_set(decoder)),
    Tag.DICT: _read_dict,
    Tag.ARRAY: _read_array,
    Tag.DATACLASS: _read_dataclass,
    Tag.VALUE: _read_value,
    **{tag: partial(_read_numbers, container=c, element=e) for (c, e), tag in NUMBER_RUNS.items()},
}
_READERS = [_KNOWN.get(byte, _unknown) for byte in range(256)]


# Dicts and sets of keys that somebody may have chosen to collide, built under a clock
#
# How many slots and equal hashes a key meets in a dict is CPython's affair: ints walk along chains of slots, a
# comparison of two frozensets may itself cost the square of their members, and the next version does it otherwise. So
# nothing of that is foreseen: the time on a processor that keys take is measured, and compared with that of all else. A
# key that is no plain value is put in alone: it costs no more than what has been made before, itself included, as
# comparisons of it meet the same members that its making did.

#: Keys of which few have the same hash, and how many of them there may be where nothing is measured; of more, so many
#: are put in between two looks at the clock.
_PLAIN = frozenset((Tag.NONE, Tag.TRUE, Tag.FALSE, Tag.INT, Tag.FLOAT, Tag.STR, Tag.BYTES))
_PLAIN_TYPES = frozenset((type(None), bool, int, float, str, bytes))
_FEW = 256
#: What is not measured either, as the square of it is little.
_SHORT_NBYTES = 1024
#: How often the time on a processor is looked at, which takes longer than to look at another clock.
_LOOK_S = 1e-4
#: How long keys may take, and how many times as long as all else. Those that do not collide take less than half of it.
_FREE_S, _TIMES = 0.25, 2.0


class _Building:
    """Makes the dicts and sets of one object, of so many bytes.

    All methods raise `DecodeError` where the keys have taken too long.
    """

    __slots__ = ("_began_s", "_took_s")

    def __init__(self, nbytes: int) -> None:
        self._began_s = thread_time() if nbytes > _SHORT_NBYTES else 0.0
        self._took_s = 0.0

    def dict_of(self, keys: list[Any], values: list[Any]) -> dict[Any, Any]:
        """Return a dict of many keys."""
        items: dict[Any, Any] = {}
        if _PLAIN_TYPES.issuperset(map(type, keys)):
            slices = [slice(first, first + _FEW) for first in range(0, len(keys), _FEW)]
            self._put(items.update, ((zip(keys[some], values[some], strict=True),) for some in slices))
        else:
            self._put(items.__setitem__, zip(keys, values, strict=True))
        return items

    def set_of(self, members: list[Any], nbytes: int) -> set[Any]:
        """Return a set that has come as so many bytes."""
        if nbytes <= _SHORT_NBYTES:
            return set(members)
        made: set[Any] = set()
        if _PLAIN_TYPES.issuperset(map(type, members)):
            self._put(made.update, ((members[first : first + _FEW],) for first in range(0, len(members), _FEW)))
        else:
            self._put(made.add, zip(members, strict=True))
        return made

    def _put(self, put: Callable[..., object], steps: Iterable[tuple[Any, ...]]) -> None:
        since_s, look_at_s = thread_time(), perf_counter() + _LOOK_S
        for step in steps:
            put(*step)
            if perf_counter() > look_at_s:
                since_s, look_at_s = self._judge(since_s), perf_counter() + _LOOK_S
        self._judge(since_s)

    def _judge(self, since_s: float) -> float:
        """Count what keys have taken since then; return the time."""
        now_s = thread_time()
        self._took_s += now_s - since_s
        if self._took_s > max(_FREE_S, _TIMES * (now_s - self._began_s - self._took_s)):
            raise DecodeError("the keys of dicts or members of sets collide, and take too long")
        return now_s
