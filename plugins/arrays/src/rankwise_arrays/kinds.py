"""What a functional call takes and gives back: the caller's own kind of value.

NumPy's arrays and those of a device that a plugin brings are worked on as they are, and numbers of Python as arrays
without dimensions. Other libraries' arrays, such as torch's and JAX's, become one of the former by DLPack, which shares
their memory, and what is given back is made theirs in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple

import numpy as np

import rankwise as dist
from rankwise.backends import DeviceKind, kind_of, to_device, to_host

#: An array of NumPy or of a device.
Array = Any
Group = dist.ProcessGroup | None


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
    kind = kind_of(value)
    if kind is not None and type(value).__module__.partition(".")[0] in kind.modules:
        return Taken(value, _as_it_is)
    if not hasattr(value, "__dlpack_device__"):
        raise TypeError(f"{call}: {type(value).__qualname__} is neither an array nor a number")
    try:
        array = np.from_dlpack(value) if kind is None else kind.share(value)
        return Taken(array, _namespace(value).from_dlpack)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        if kind is None and hasattr(value, "__array__"):  # NumPy's DLPack knows no bfloat16, in which JAX has arrays
            with suppress(RuntimeError, TypeError, ValueError):
                return Taken(np.asarray(value), _namespace(value).asarray)
        raise TypeError(f"{call}: {type(value).__qualname__} cannot be taken by DLPack: {error}") from error


def copied(array: Array) -> Array:
    """Return a new array in the order of rows, with the same values."""
    if type(array) is np.ndarray:
        return array.copy()
    kind = kind_of(array)
    if kind is None:
        return array.copy(order="C")
    with _on(kind, array):
        return kind.copy(array)


def in_order(array: Array) -> Array:
    """Return an array in the order of rows: itself, or a copy."""
    return array if array.flags.c_contiguous else copied(array)


def empty(like: Array, shape: tuple[int, ...], dtype: Any = None) -> Array:
    """Return an array where another lies, of its dtype or a given one."""
    kind, dtype = kind_of(like), np.dtype(like.dtype if dtype is None else dtype)
    if kind is None:
        return np.empty(shape, dtype)
    with _on(kind, like):
        return kind.empty(shape, dtype)


def placed_like(like: Array, host: np.ndarray[Any, Any]) -> Array:
    """Return an array of the host where another lies."""
    if kind_of(like) is None:
        return host
    array = empty(like, host.shape, host.dtype)
    to_device(array, host)
    return array


def numbers(like: Array, values: Sequence[Any]) -> Array:
    """Return integers where an array lies."""
    return placed_like(like, np.array(values, np.int64))


def concatenated(parts: Sequence[Array], axis: int | None) -> Array:
    """Join arrays; flat ones without an axis; those of a device that does not compute on the host."""
    kind = kind_of(parts[0])
    if kind is None:
        return np.concatenate(parts, axis)
    with _on(kind, parts[0]):
        if kind.computes:
            return np.concatenate(parts, axis)
        return placed_like(parts[0], np.concatenate([to_host(part) for part in parts], axis))


def is_member(group: Group) -> bool:
    """Tell whether this rank takes part in calls on a group."""
    return group is None or dist.get_rank(group) >= 0  # all are in the default group, which is not asked for that


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


def _on(kind: DeviceKind, array: Array) -> AbstractContextManager[Any]:
    return kind.current(kind.index(array))
