"""Names and marks of dtypes: how ranks tell each other which dtype they mean.

A mark is a 32-bit number that fits into any header. Two dtypes have the same mark if their arrays have the same bytes
for the same values: byte order and the fields of structured types count.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np

__all__ = ["RAW", "dtype_mark", "dtype_text", "known_dtype", "plain_text"]


@lru_cache(maxsize=256)
def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype's name in messages: ASCII, at most 200 characters, different for different dtypes."""
    # `str` of bfloat16 is "<V2"; its name tells more.
    text = plain_text(str(dtype.name) if dtype.kind == "V" and dtype.names is None else str(dtype))
    return text if len(text) < 200 else f"{text[:100]}... ({_hash(text):x})"


@lru_cache(maxsize=256)
def dtype_mark(dtype: np.dtype[Any]) -> int:
    """Return the mark of a dtype, which is never 0."""
    return _hash(dtype_text(dtype)) or 1


def known_dtype(mark: int) -> str | None:
    """Return the name of the dtype with a mark, if it is one that every rank knows."""
    return _known().get(mark)


def plain_text(text: str) -> str:
    """Return a text whose JSON has as many bytes as it has characters, or nearly so."""
    return text.encode("ascii", "replace").decode()


def _hash(text: str) -> int:
    return crc32(text.encode())


@lru_cache(maxsize=1)
def _known() -> dict[int, str]:
    native = [np.dtype(letter) for letter in "?bBhHiIlLqQefdgFDG"]
    both = [order for dtype in native for order in (dtype, dtype.newbyteorder())]
    return {dtype_mark(dtype): dtype_text(dtype) for dtype in both}


#: The mark of plain bytes, as which a message of any dtype may be received.
RAW = dtype_mark(np.dtype(np.uint8))
