"""The small value types, each with the plain value that it travels as.

Only the types of this table are ever looked up, by a code, so bytes cannot name any other. The payload's shape is
checked before a constructor sees it: some constructors do much work for few bytes (`Fraction("1e999999999")`).
"""

from __future__ import annotations

import datetime
import importlib
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from rankwise.codec.dtypes import dtype_from_spec, dtype_spec

__all__ = ["ValueType", "value_type_by_code", "value_type_of"]

_ZONE_KEY = re.compile(r"[A-Za-z0-9_+\-]+(?:/[A-Za-z0-9_+\-]+)*")
_ZONE = (type(None), datetime.tzinfo)

#: The types that a payload may have; for a tuple one entry for each of its items.
_Shape = Any


class ValueType(NamedTuple):
    """How one type travels. `make` gets the type and a payload of the right shape."""

    module: str
    name: str
    shape: _Shape
    plain: Callable[[Any], Any]
    make: Callable[[Any, Any], Any]

    def build(self, payload: Any) -> Any:
        """Return the value for a payload from outside.

        Raises:
            Exception: It is none; of whatever kind the type's constructor raises.
        """
        if not _fits(payload, self.shape):
            raise ValueError(f"not the payload of a {self.name}")
        return self.make(getattr(importlib.import_module(self.module), self.name), payload)


def value_type_by_code(code: int) -> ValueType | None:
    """Return the entry that a byte stands for."""
    return _TABLE.get(code)


def value_type_of(kind: type) -> tuple[int, ValueType] | None:
    """Return the code and entry of a type, if its instances travel as small values."""
    if issubclass(kind, np.dtype):
        return _DTYPE, _TABLE[_DTYPE]
    for code, entry in _TABLE.items():
        if getattr(sys.modules.get(entry.module), entry.name, None) is kind:
            return code, entry
    if issubclass(kind, np.generic):
        return _SCALAR, _TABLE[_SCALAR]
    return None


def _fits(payload: Any, shape: _Shape) -> bool:
    if not isinstance(shape, tuple):
        return isinstance(payload, shape)
    return type(payload) is tuple and len(payload) == len(shape) and all(map(isinstance, payload, shape))


def _zone_key(zone: Any) -> str:
    if zone.key is None or not _ZONE_KEY.fullmatch(zone.key):
        raise TypeError("a ZoneInfo without a plain key does not travel")
    return str(zone.key)


def _zone(kind: Any, key: str) -> Any:
    if not _ZONE_KEY.fullmatch(key):
        raise ValueError("not the name of a time zone")
    return kind(key)


def _timezone_parts(zone: datetime.timezone) -> tuple[datetime.timedelta, str]:
    return (zone.utcoffset(None), zone.tzname(None))


def _timezone(kind: Any, payload: tuple[datetime.timedelta, str]) -> Any:
    plain = kind(payload[0])
    return plain if plain.tzname(None) == payload[1] else kind(*payload)


def _scalar_parts(scalar: np.generic) -> tuple[Any, bytes]:
    if scalar.dtype.type is not type(scalar):
        raise TypeError(f"a subclass of a NumPy scalar ({type(scalar).__name__}) does not travel")
    return (dtype_spec(scalar.dtype), scalar.tobytes())


def _scalar(_: Any, payload: tuple[Any, bytes]) -> Any:
    dtype = dtype_from_spec(payload[0])
    if dtype.kind in "SU" or dtype.subdtype is not None or dtype.itemsize != len(payload[1]):
        raise ValueError("not the payload of a NumPy scalar")
    return np.ndarray((), dtype, bytearray(payload[1]))[()]


@cache
def _isoformat() -> Callable[[Any], str]:
    return lambda moment: moment.replace(tzinfo=None).isoformat()


_DTYPE, _SCALAR = b"ng"

_TABLE: dict[int, ValueType] = {}
