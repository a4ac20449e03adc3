"""The dtype of a message on its way: a mark of 32 bits, and for dtypes that not every rank knows a description.

A backend that declares `message_dtypes` sends what `describe_dtype` returns, and gives what `described_dtype` makes of
it to `Mailbox.deliver`: then an error names both dtypes, structured ones included.
"""

from __future__ import annotations

from ast import literal_eval
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.format import descr_to_dtype, dtype_to_descr

from rankwise.basics.arrays import dtype_mark, known_dtype

__all__ = ["describe_dtype", "described_dtype"]

#: How long a description may be; a longer one is left out, and errors name the mark.
_MOST_NBYTES = 60_000


@lru_cache(maxsize=256)
def describe_dtype(dtype: np.dtype[Any]) -> tuple[int, bytes]:
    """Return a dtype's mark, and a description if not every rank knows the dtype by its mark.

    Examples:
        >>> describe_dtype(np.dtype("f4"))[1]
        b''
    """
    mark = dtype_mark(dtype)
    if known_dtype(mark):
        return mark, b""
    try:
        described = repr(dtype_to_descr(dtype)).encode()
    except ValueError:  # fields that overlap have none
        described = b""
    return mark, described if len(described) <= _MOST_NBYTES else b""


@lru_cache(maxsize=256)
def described_dtype(mark: int, described: bytes) -> np.dtype[Any] | int:
    """Return the dtype that has been described; the mark itself if that says all, or the description too little."""
    with suppress(ValueError, SyntaxError, TypeError):
        dtype = descr_to_dtype(literal_eval(described.decode())) if described else None
        if dtype is not None and dtype_mark(dtype) == mark:
            return dtype
    return mark
