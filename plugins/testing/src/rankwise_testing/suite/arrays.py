"""Arrays of every dtype on the device under test, and exact comparison."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rankwise.backends import device_kind_named, to_host
from rankwise.kits import Array, placed


@dataclass(frozen=True)
class Terms:
    """What the tests of this context go by, as the table offers it.

    Attributes:
        device: The kind of device.
        plain: The dtype of arrays wherever a test could take any.
        other: Another one, which differs from it.
    """

    device: str = "cpu"
    plain: str = "float32"
    other: str = "int32"


_terms: ContextVar[Terms] = ContextVar("rankwise_suite_terms", default=Terms())  # noqa: B039 - it is frozen

_SPECIAL: dict[str, Any] = {
    "bool": np.bool_,
    "datetime64": "datetime64[s]",
    "timedelta64": "timedelta64[s]",
    "bytes": "S3",
    "str": "U2",
    "structured": [("a", "<i4"), ("b", "<f8"), ("c", "u1", (3,))],
    "void": "V5",
}


def missing_device(kind: str) -> str:
    """Return why there is no device of a kind on this machine, or nothing if there is one or nobody can tell."""
    found = device_kind_named(kind)
    return "" if found is None else found.why_not()


def use_terms(terms: Terms) -> None:
    """Let this context go by these terms."""
    _terms.set(terms)


def device() -> str:
    """Return the kind of device under test."""
    return _terms.get().device


def plain() -> np.dtype[Any]:
    """Return the dtype of arrays wherever a test could take any."""
    return dtype_named(_terms.get().plain)


def other() -> np.dtype[Any]:
    """Return a dtype that is not the plain one."""
    return dtype_named(_terms.get().other)


def plain_name() -> str:
    """Return the plain dtype's name in the capability table."""
    return _terms.get().plain


@cache
def dtype_named(name: str) -> np.dtype[Any]:
    """Return a dtype for a name of the capability table.

    Raises:
        LookupError: It needs `ml_dtypes`, which is not there or does not have it.
    """
    found: np.dtype[Any]
    if name in _SPECIAL or hasattr(np, name):
        found = np.dtype(_SPECIAL.get(name, name))
        return found
    try:
        import ml_dtypes

        found = np.dtype(getattr(ml_dtypes, name))
        return found
    except (ImportError, AttributeError) as error:
        raise LookupError(f"there is no dtype {name} here: {error}") from error


@cache
def why_not(name: str, device_name: str) -> str:
    """Return why no array of a dtype can be made on a device, or nothing if it can."""
    try:
        dtype = dtype_named(name)
    except LookupError as error:
        return str(error)
    try:
        placed(np.zeros(1, dtype), device_kind_named(device_name))
    except (TypeError, ValueError) as error:
        return f"the device has no arrays of {name}: {error}"
    return ""


def on_device(array: Any) -> Array:
    """Return a copy of a host array on the device under test."""
    return placed(np.array(array, copy=True), device_kind_named(device()))


def last_device() -> AbstractContextManager[Any]:
    """Make the last device of its kind the current one: the only one on a CPU, and often so on a GPU."""
    kind = device_kind_named(device())
    return nullcontext() if kind is None else kind.current(kind.count() - 1)


def own_stream() -> AbstractContextManager[Any]:
    """Give this thread a queue of its own on a device: on a shared one, later calls wait for earlier ones."""
    kind = device_kind_named(device())
    return nullcontext() if kind is None else kind.queue()


def sample(name: str, count: int, rank: int, salt: int = 0) -> Any:
    """Return a host array to be moved, which differs by rank, by `salt` and by position."""
    places = np.arange(count)
    numbers = (places * 7 + places // 89 * 5 + rank * 31 + salt * 13) % 89 + 10
    dtype = dtype_named(name)
    if name == "bool":
        return numbers % 2 == 0
    if name in ("bytes", "str"):
        return numbers.astype(dtype)
    if name in ("datetime64", "timedelta64"):
        return numbers.astype(np.int64).view(dtype)
    if name in ("structured", "void"):
        raw = (numbers[:, None] * 3 + np.arange(dtype.itemsize)) % 100
        return raw.astype(np.uint8).reshape(-1).view(dtype)
    array = numbers.astype(dtype)
    if name in ("float16", "float32", "float64") and count > 3:
        array[1:4] = np.nan, -0.0, np.inf  # what moves must not be touched
    return array


def pattern(nbytes: int, salt: int = 0) -> Any:
    """Return so many bytes on the host, which differ by `salt` and by position; quick, and not to be written to."""
    return _repeated(max(1 << 20, 1 << nbytes.bit_length()))[salt % 251 :][:nbytes]


@cache
def _repeated(nbytes: int) -> Any:
    bytes_ = np.tile(np.arange(251, dtype=np.uint8), nbytes // 251 + 2)
    bytes_.flags.writeable = False
    return bytes_


def same(array: Array, want: Any) -> None:
    """Raise unless an array has exactly this content."""
    problem = differences(array, want)
    if problem:
        raise AssertionError(problem)


def differences(array: Array, want: Any) -> str:
    """Say how an array differs from what is wanted; nothing if it does not."""
    got = to_host(array)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"got {got.dtype} of shape {got.shape}, wanted {want.dtype} of shape {want.shape}"
    unequal = _rows(got) != _rows(want)
    if not unequal.any():
        return ""
    wrong = np.flatnonzero(unequal.any(axis=1))
    first = int(wrong[0])
    return (
        f"{wrong.size} of {got.size} elements are wrong; element {first} is {got.reshape(-1)[first]!r} "
        f"and should be {want.reshape(-1)[first]!r}"
    )


def _rows(array: Any) -> Any:
    """Return what each element consists of, in a row."""
    if array.dtype.char in "gG":  # the padding of a long double is nobody's business
        return np.array([repr(value) for value in array.reshape(-1).tolist()], str).reshape(-1, 1)
    rows = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, array.dtype.itemsize)
    while rows.shape[1] % 2 == 0 and rows.dtype.itemsize < 8:
        rows = rows.view(f"u{2 * rows.dtype.itemsize}")
    return rows
