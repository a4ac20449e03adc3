"""What a functional call takes and gives back: the caller's own kind of value.

NumPy's and CuPy's arrays are worked on as they are, and numbers of Python as arrays without dimensions. Other
libraries' arrays, such as torch's and JAX's, become one of the two by DLPack, which shares their memory, and what is
given back is made theirs in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rankwise as dist

__all__ = ["Array", "Group", "Taken", "copied", "empty", "in_order", "is_member", "taken"]

#: An array of NumPy or of CuPy, which have the methods used here in common.
Array = Any
Group = dist.ProcessGroup | None

_HOST = 1  # DLPack's number for memory that the CPU reads


class Taken(NamedTuple):
    """A value that a call was given.

    Attributes:
        array: The array to read; it may be the caller's own, and is never written to.
        give_back: Makes an array what the caller's own is.
    """

    array: Array
    give_back: Callable[[Array], Any]


def taken(call: str, value: Any) -> Taken:
    """Take what a call was given.

    Raises:
        TypeError: It is neither an array nor a number.
    """
    if type(value) is np.ndarray:
        return Taken(value, _as_it_is)
    if isinstance(value, (bool, int, float, complex)):
        return Taken(_number(call, value), _number_again)
    if isinstance(value, np.generic):
        return Taken(np.asarray(value), _scalar_again)
    if isinstance(value, np.ndarray):
        return Taken(np.asarray(value), _as_it_is)
    if not hasattr(value, "__dlpack_device__"):
        raise TypeError(f"{call}: {type(value).__qualname__} is neither an array nor a number")
    if type(value).__module__.partition(".")[0] == "cupy":
        return Taken(value, _as_it_is)
    library = np if value.__dlpack_device__()[0] == _HOST else _cupy(call)
    try:
        return Taken(library.from_dlpack(value), _namespace(value).from_dlpack)
    except (BufferError, RuntimeError, ValueError) as error:
        raise TypeError(f"{call}: {type(value).__qualname__} cannot be taken by DLPack: {error}") from error


def copied(array: Array) -> Array:
    """Return a new array in the order of rows, with the same values."""
    return array.copy(order="C")


def in_order(array: Array) -> Array:
    """Return an array in the order of rows: itself, or a copy."""
    return array if array.flags.c_contiguous else array.copy(order="C")


def empty(like: Array, shape: tuple[int, ...], dtype: Any = None) -> Array:
    """Return an array where another lies, of its dtype or a given one."""
    library = np if isinstance(like, np.ndarray) else sys.modules["cupy"]
    return library.empty(shape, like.dtype if dtype is None else dtype)


def is_member(group: Group) -> bool:
    """Tell whether this rank takes part in calls on a group."""
    return dist.get_rank(group) >= 0


def _number(call: str, value: complex) -> Array:
    try:
        return np.array(value, np.int64 if type(value) is int else None)
    except OverflowError:
        raise ValueError(f"{call}: {value} is beyond the integers of 64 bits; pass a float or an array") from None


def _as_it_is(array: Array) -> Array:
    return array


def _number_again(array: Array) -> Any:
    return array.item() if array.ndim == 0 else array


def _scalar_again(array: Array) -> Any:
    return array[()]


def _namespace(value: Any) -> Any:
    """Return the library whose functions make such arrays."""
    if hasattr(value, "__array_namespace__"):
        return value.__array_namespace__()
    return sys.modules[type(value).__module__.partition(".")[0]]


def _cupy(call: str) -> Any:
    try:
        import cupy
    except ImportError as error:
        raise TypeError(f"{call}: an array that is not in the CPU's memory needs CuPy: {error}") from error
    return cupy
