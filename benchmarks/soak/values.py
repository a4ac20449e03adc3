"""The model: what each rank contributes to each step, and what comes of it, by NumPy alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rankwise_testing.suite.layouts import LAYOUTS, given

_NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
_PLAIN = {name: np.dtype(name) for name in _NUMBERS}
_ALL = {**_PLAIN, **LAYOUTS}
#: Names of the dtypes that move.
DTYPES = tuple(_ALL)
#: Those of which there are also large arrays: making values takes long.
LARGE_DTYPES = ("u1", "f4", "i8", "f2", ">i8", "padded struct", "big-endian fields")

#: For each reduce op, the dtypes on which its result is exact whatever the order.
OPS: dict[str, tuple[str, ...]] = {
    "SUM": (*_NUMBERS, ">i8", ">f4", ">f2", ">c8", ">u2"),
    "AVG": ("f2", "f4", "f8", "c8", ">f8"),
    "PRODUCT": ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i8"),
    "MIN": (*_NUMBERS[:11], ">i8", "M8[ns]", ">u8"),
    "MAX": (*_NUMBERS[:11], ">f8", "m8[D]", ">u8"),
    "BAND": ("i4", "u8", "?", ">u2"),
    "BOR": ("i1", "u8", "?"),
    "BXOR": ("i2", "i8", ">u8"),
    "PREMUL_SUM": ("f2", "f4", "f8", "c16", ">f4"),
}
_UFUNCS = {
    **dict.fromkeys(("SUM", "AVG", "PREMUL_SUM"), np.add),
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}
_SHIFTS = 509
_SPREAD = 0x9E3779B97F4A7C15


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of a name."""
    return _ALL[name]


def part(name: str, count: int, *salts: int) -> Any:
    """Return the values that the salts (step, sender, receiver) stand for; not to be written to."""
    shift = 0
    for salt in salts:
        shift = (shift * 31 + salt * 17 + 7) % _SHIFTS
    room = 1 << max(12, (count + _SHIFTS).bit_length())
    return _base(name, room)[shift : shift + count]


def factor(rank: int) -> int:
    """Return the factor of a rank's PREMUL_SUM."""
    return 1 + rank % 3


def reduced(op: str, parts: list[Any]) -> Any:
    """Return what the parts of all ranks reduce to."""
    dtype = parts[0].dtype
    wide = np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize == 2 else dtype.newbyteorder("=")
    with np.errstate(all="ignore"):
        arrays = [array.astype(wide) for array in parts]
        if op == "PREMUL_SUM":
            arrays = [array * wide.type(factor(rank)) for rank, array in enumerate(arrays)]
        total = arrays[0].copy()
        for array in arrays[1:]:
            _UFUNCS[op](total, array, out=total)
        return (total / wide.type(len(parts)) if op == "AVG" else total).astype(dtype)


@lru_cache(maxsize=64)
def _base(name: str, count: int) -> Any:
    dtype = _ALL[name]
    if dtype.kind in "iu":  # every bit counts, and sums and products wrap around
        array = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_SPREAD)) >> np.uint64(64 - 8 * dtype.itemsize)
        array = array.astype(dtype)
    else:
        array = given(dtype, count, 3)
    array.flags.writeable = False
    return array
