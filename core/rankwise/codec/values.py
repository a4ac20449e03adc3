"""The small value types, each with the plain value that it travels as.

Only the types of this table are ever looked up, by a code, so bytes cannot name any other. The payload's shape is
checked before a constructor sees it: some constructors do much work for few bytes (`Fraction("1e999999999")`).
"""

from __future__ import annotations

import datetime
import importlib
import os
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rankwise.codec.dtypes import dtype_from_spec, dtype_spec

_ZONE_KEY = re.compile(r"[A-Za-z0-9_+\-]+(?:/[A-Za-z0-9_+\-]+)*")
_ZONE = (type(None), datetime.tzinfo)
_MICROSECOND = datetime.timedelta(microseconds=1)


class ValueType(NamedTuple):
    """How one type travels.

    `shape` is the type of the payload, or a list of the types of its items where the payload is a tuple; `plain`
    makes the payload of a value, `make` the value from the type and a payload of the right shape.
    """

    module: str
    name: str
    shape: Any
    plain: Callable[[Any], Any]
    make: Callable[[Any, Any], Any]

    def build(self, payload: Any) -> Any:
        """Return the value of a payload from outside.

        Raises:
            Exception: There is none; of whatever kind the type's constructor raises.
        """
        if not _fits(payload, self.shape):
            raise ValueError(f"not the payload of a {self.name}")
        return self.make(getattr(importlib.import_module(self.module), self.name), payload)


def value_type_by_code(code: int) -> ValueType:
    """Return the entry that a byte stands for."""
    entry = _TABLE.get(code)
    if entry is None:
        raise ValueError(f"there is no type with the code {code}")
    return entry


def value_type_of(kind: type) -> tuple[int, ValueType] | None:
    """Return the code and the entry of a type, or None if its instances are no small values."""
    for code, entry in _TABLE.items():
        # A module that is not loaded has no instances, and need not be loaded to know that.
        if vars(sys.modules.get(entry.module, object)).get(entry.name) is kind:
            return code, entry
    if issubclass(kind, np.dtype):
        return _DTYPE, _TABLE[_DTYPE]
    return (_SCALAR, _TABLE[_SCALAR]) if issubclass(kind, np.generic) else None


def _fits(payload: Any, shape: Any) -> bool:
    if not isinstance(shape, list):
        return isinstance(payload, shape)
    return type(payload) is tuple and len(payload) == len(shape) and all(map(isinstance, payload, shape))


def _call(kind: Any, payload: Any) -> Any:
    return kind(payload)


def _spread(kind: Any, payload: Any) -> Any:
    return kind(*payload)


def _moment_parts(moment: Any) -> tuple[str, int, Any]:
    return (moment.replace(tzinfo=None).isoformat(), moment.fold, moment.tzinfo)


def _moment(kind: Any, payload: Any) -> Any:
    text, fold, zone = payload
    return kind.fromisoformat(text).replace(tzinfo=zone, fold=fold)


def _timezone_parts(zone: datetime.timezone) -> tuple[int, str]:
    return (zone.utcoffset(None) // _MICROSECOND, zone.tzname(None))


def _timezone(kind: Any, payload: Any) -> Any:
    microseconds, name = payload
    offset = microseconds * _MICROSECOND
    unnamed = kind(offset)
    return unnamed if unnamed.tzname(None) == name else kind(offset, name)


def _zone_key(zone: Any) -> str:
    if zone.key is None or not _ZONE_KEY.fullmatch(zone.key):
        raise TypeError("a ZoneInfo without the name of a time zone does not travel")
    return str(zone.key)


def _zone(kind: Any, key: str) -> Any:
    # The name becomes a path in the time zone data, so nothing that could lead out of there.
    if not _ZONE_KEY.fullmatch(key) or not (_is_in_system(key) or key in _zones_of_tzdata()):
        raise ValueError(f"not the name of a time zone that this process knows: {key[:40]!r}")
    return kind(key)


def _is_in_system(key: str) -> bool:
    import zoneinfo

    return any(os.path.isfile(os.path.join(folder, key)) for folder in zoneinfo.TZPATH)


@lru_cache(maxsize=1)
def _zones_of_tzdata() -> frozenset[str]:
    """Return the zones of the package tzdata, where it is installed.

    `ZoneInfo` imports the module that a name it does not find in the system begins with; of any other it must not hear.
    """
    try:
        import importlib.resources  # only now: it takes longer than the rest of this package

        text = importlib.resources.files("tzdata").joinpath("zones").read_text(encoding="ascii")
    except (ImportError, OSError, ValueError):
        return frozenset()
    return frozenset(text.split())


def _scalar_parts(scalar: np.generic) -> tuple[Any, bytes]:
    if scalar.dtype.type is not type(scalar):
        raise TypeError("a subclass of a NumPy scalar does not travel")
    return (dtype_spec(scalar.dtype), scalar.tobytes())


def _scalar(_: Any, payload: tuple[Any, bytes]) -> Any:
    dtype = dtype_from_spec(payload[0])
    # Strings have codes of their own: an array would cut the zeros off their ends.
    if dtype.kind in "SU" or dtype.subdtype is not None or dtype.itemsize != len(payload[1]):
        raise ValueError("not the payload of a NumPy scalar")
    return np.ndarray((), dtype, bytearray(payload[1]))[()]


_DTYPE, _SCALAR = b"ng"
_ENTRIES: dict[int, tuple[str, str, Any, Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    b"d"[0]: ("datetime", "date", str, lambda d: d.isoformat(), lambda kind, text: kind.fromisoformat(text)),
    b"t"[0]: ("datetime", "time", [str, int, _ZONE], _moment_parts, _moment),
    b"m"[0]: ("datetime", "datetime", [str, int, _ZONE], _moment_parts, _moment),
    b"l"[0]: ("datetime", "timedelta", [int, int, int], lambda d: (d.days, d.seconds, d.microseconds), _spread),
    b"o"[0]: ("datetime", "timezone", [int, str], _timezone_parts, _timezone),
    b"z"[0]: ("zoneinfo", "ZoneInfo", str, _zone_key, _zone),
    b"r"[0]: ("builtins", "range", [int, int, int], lambda r: (r.start, r.stop, r.step), _spread),
    b"O"[0]: ("collections", "OrderedDict", dict, dict, _call),
    b"C"[0]: ("collections", "Counter", dict, dict, _call),
    b"Q"[0]: ("collections", "deque", [list, (int, type(None))], lambda d: (list(d), d.maxlen), _spread),
    b"D"[0]: ("decimal", "Decimal", str, str, _call),
    b"F"[0]: ("fractions", "Fraction", [int, int], lambda f: (f.numerator, f.denominator), _spread),
    b"U"[0]: ("uuid", "UUID", bytes, lambda u: u.bytes, lambda kind, raw: kind(bytes=raw)),
    b"p"[0]: ("pathlib", "PosixPath", str, str, _call),
    b"P"[0]: ("pathlib", "PurePosixPath", str, str, _call),
    b"s"[0]: ("numpy", "str_", str, str, _call),
    b"b"[0]: ("numpy", "bytes_", bytes, bytes, _call),
    _DTYPE: ("numpy", "dtype", (str, tuple), dtype_spec, lambda _, spec: dtype_from_spec(spec)),
    _SCALAR: ("numpy", "generic", [(str, tuple), bytes], _scalar_parts, _scalar),
}
_TABLE = {code: ValueType(*entry) for code, entry in _ENTRIES.items()}
