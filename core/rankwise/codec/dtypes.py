"""NumPy dtypes as plain values, and back without evaluating anything.

A simple dtype is its `dtype.str`, one of ml_dtypes "ml_dtypes.NAME"; a subarray is `("array", base, shape)`, and a
structure `("struct", itemsize, aligned, ((name, title, offset, dtype), ...))`.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any

import numpy as np

_SIMPLE = re.compile(r"[<>|]?(?:[biufc][0-9]{1,2}|[SUV][0-9]{1,10}|[mM]8(?:\[(?:[1-9][0-9]{0,8})?[A-Za-z]{1,2}\])?)")
_ML_PREFIX = "ml_dtypes."
#: The description of a structure is three levels of tuples deep, of which an object has `MAX_DEPTH`.
_MAX_DEPTH = 16


def dtype_spec(dtype: np.dtype[Any], depth: int = 0) -> str | tuple[Any, ...]:
    """Return a dtype as a plain value; `depth` is that of the structures around it.

    Raises:
        TypeError: It holds Python objects, is nested too deep, or belongs to a library that is not known here.
    """
    if depth > _MAX_DEPTH:
        raise TypeError(f"a structure that is nested deeper than {_MAX_DEPTH} levels does not travel")
    if dtype.hasobject:
        raise TypeError("an array of Python objects is not plain memory; send a list, or choose another dtype")
    if dtype.names is not None and dtype.type is np.void:
        return ("struct", dtype.itemsize, dtype.isalignedstruct, tuple(_field(dtype, n, depth) for n in dtype.names))
    if dtype.subdtype is not None:
        return ("array", dtype_spec(dtype.subdtype[0], depth + 1), dtype.shape)
    if dtype.isbuiltin == 2 and dtype.isnative and dtype.type.__module__ == "ml_dtypes":
        return _ML_PREFIX + dtype.type.__name__
    text = str(dtype.str)
    if (dtype.kind == "V" and dtype.type is not np.void) or not _SIMPLE.fullmatch(text):
        raise TypeError(f"the dtype {dtype} does not travel")
    return text


def dtype_from_spec(spec: Any) -> np.dtype[Any]:
    """Return the dtype that `dtype_spec` described.

    Raises:
        ValueError, TypeError: It describes none.
    """
    if isinstance(spec, str):
        return _simple(spec)
    if not isinstance(spec, tuple) or not spec:
        raise ValueError("not the description of a dtype")
    if spec[0] == "array":
        _, base, shape = spec
        if not isinstance(shape, tuple) or not all(type(n) is int for n in shape):
            raise ValueError("the shape of a subarray must be a tuple of ints")
        return np.dtype((dtype_from_spec(base), shape))
    return _struct(*spec)


@lru_cache(maxsize=256)
def _simple(text: str) -> np.dtype[Any]:
    if text.startswith(_ML_PREFIX):
        return _ml_dtype(text[len(_ML_PREFIX) :])
    if not _SIMPLE.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a dtype that travels")
    return np.dtype(text)


def _ml_dtype(name: str) -> np.dtype[Any]:
    module = sys.modules.get("ml_dtypes")
    if module is None:
        raise ValueError(f"the dtype {name[:40]} needs ml_dtypes, which this process has not imported")
    scalar = vars(module).get(name)
    if not isinstance(scalar, type) or not issubclass(scalar, np.generic):
        raise ValueError(f"ml_dtypes has no dtype {name[:40]!r}")
    return np.dtype(scalar)


def _field(dtype: np.dtype[Any], name: str, depth: int) -> tuple[str, str | None, int, Any]:
    assert dtype.fields is not None
    kind, offset, *title = dtype.fields[name]
    return (name, title[0] if title else None, offset, dtype_spec(kind, depth + 1))


def _struct(mark: Any, itemsize: Any, aligned: Any, fields: Any) -> np.dtype[Any]:
    if mark != "struct" or type(itemsize) is not int or type(aligned) is not bool or type(fields) is not tuple:
        raise ValueError("not the description of a dtype")
    names, titles, offsets, specs = zip(*fields, strict=True) if fields else ((), (), (), ())
    if not all(type(n) is str for n in names) or not all(type(n) is int for n in offsets):
        raise ValueError("the fields of a structure need names and offsets")
    if not all(t is None or type(t) is str for t in titles):
        raise ValueError("the titles of fields must be strings")
    formats = [dtype_from_spec(spec) for spec in specs]
    layout: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize}
    if any(titles):
        layout["titles"] = titles
    dtype: np.dtype[Any] = np.dtype(layout, align=aligned)
    return dtype
