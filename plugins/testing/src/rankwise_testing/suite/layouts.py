"""Layouts of memory that a copy by values, or in the machine's own byte order, gets wrong; and values for them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

_INNER = np.dtype([("x", ">u2"), ("y", "<f8"), ("z", "S3")])
#: By names for messages.
LAYOUTS: dict[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in ("<i4", ">i4", ">i8", ">u2", ">u8", ">f2", ">f4", ">f8", ">c8", ">c16")},
    **{name: np.dtype(name) for name in ("M8[ns]", ">M8[s]", "m8[D]", ">m8[us]", "?", "S7", "<U2", ">U3", "V3", "V16")},
    "longdouble in the other order": np.dtype(np.longdouble).newbyteorder(),
    "packed struct": np.dtype([("a", "i1"), ("b", "<f8"), ("c", "<u2")]),
    "padded struct": np.dtype([("a", "i1"), ("b", "<f8"), ("c", "<u2")], align=True),
    "struct with a tail": np.dtype({"names": ["a", "b"], "formats": ["<i4", "u1"], "offsets": [8, 3], "itemsize": 24}),
    "big-endian fields": np.dtype([("a", ">i4"), ("b", ">f8")]),
    "mixed fields": np.dtype([("a", ">i4"), ("b", "<f8"), ("c", "M8[s]"), ("d", "?")], align=True),
    "nested struct": np.dtype([("head", _INNER), ("row", _INNER, (2,)), ("n", ">i8")], align=True),
    "struct of arrays": np.dtype([("a", ">f4", (2, 2)), ("b", "S1", (3,))]),
}


def data(dtype: np.dtype[Any], count: int, salt: int) -> Any:
    """Return an array with values of a dtype that differ by position and salt; comparable, so no number is NaN."""
    return given(dtype, count, salt).copy()


@lru_cache(maxsize=4096)
def given(dtype: np.dtype[Any], count: int, salt: int) -> Any:
    """Return the same array each time, which is not to be written to."""
    numbers = (np.arange(count) * 7 + salt * 31) % 97 + 1
    if dtype.names is not None:
        array = np.zeros(count, dtype)
        for i, name in enumerate(dtype.names):
            field = array[name]
            inner = data(dtype[name].base, field.size, salt + i)
            field[...] = inner.reshape(field.shape)
        return array
    if dtype.kind == "V":
        raw = (numbers[:, None] + np.arange(dtype.itemsize)).astype(np.uint8)
        return raw.reshape(-1).view(dtype)
    if dtype.kind in "Mm":
        return numbers.astype(np.int64).astype(dtype)
    return (numbers % 2 == 0 if dtype.kind == "b" else numbers).astype(dtype)


def unlike(array: Any, want: Any) -> str:
    """Say how values differ, nothing if they do not; what is between fields is nobody's business."""
    if np.array_equal(array, want):
        return ""
    wrong = np.flatnonzero(array != want)
    first = int(wrong[0])
    return (
        f"{wrong.size} of {array.size} elements are wrong, from {first} to {wrong[-1]}; the first is {array[first]!r} "
        f"and should be {want[first]!r}"
    )
