"""Arrays as backends see them: exactly `numpy.ndarray`, or an array of a device, sharing the caller's memory.

An object that shares its memory by a protocol is taken without a copy, and without importing the library that it comes
from: `__array_interface__`, DLPack, the buffer protocol, and what kinds of devices bring (see `devices`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from zlib import crc32

import numpy as np

from rankwise.basics.arguments import with_article
from rankwise.basics.devices import kind_of, kind_of_type, not_brought, on_device_of
from rankwise.basics.tracebacks import shorten

if TYPE_CHECKING:
    from typing_extensions import Buffer  # a type checker has it, whether or not it is installed

_T = TypeVar("_T")

#: A `numpy.ndarray`, or an array of a device, whose library need not be there for types.
Array: TypeAlias = Any

if TYPE_CHECKING:

    class _HasArrayInterface(Protocol):
        @property
        def __array_interface__(self) -> Any: ...

    class _HasCudaArrayInterface(Protocol):
        @property
        def __cuda_array_interface__(self) -> Any: ...

    class _OfDevice(Protocol):
        @property
        def dtype(self) -> np.dtype[Any]: ...
        @property
        def itemsize(self) -> int: ...
        def __len__(self) -> int: ...

    class _HasDLPack(Protocol):
        def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
        def __dlpack_device__(self) -> Any: ...

    class _HasFormat(Protocol):
        @property
        def format(self) -> str: ...
        def tocsr(self, *args: Any, **kwargs: Any) -> Any: ...

    AnyArray: TypeAlias = (
        np.ndarray[Any, Any] | _HasArrayInterface | _HasCudaArrayInterface | _HasDLPack | _OfDevice | Buffer
    )
    """What the calls take for an array: whatever shares its memory, but neither a list nor a number."""
    SparseArray: TypeAlias = _HasFormat
    """What `all_reduce` takes besides: a sparse array or matrix of scipy, or `rankwise.backends.Coordinates`."""
else:  # of use to type checkers alone; a protocol costs time to make
    AnyArray = Any
    SparseArray = Any

#: The names of all dtypes that are plain memory, as the capability tables spell them. `longdouble` and
#: `clongdouble` differ in width between platforms; the last six need the package `ml_dtypes`.
DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "longdouble", "complex64", "complex128", "clongdouble"),
    *("datetime64", "timedelta64", "bytes", "str", "structured", "void"),
    *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e4m3b11fnuz"),
)
#: The names of those that most arrays have, which NumPy puts together each time.
_NAMES = {np.dtype(name): name for name in (*DTYPES[:12], "complex64", "complex128")}

#: What else of this project takes another library's arrays, when a program asks for it.
_BRIDGES = ("rankwise_torch",)
#: For each type that a library has registered, what makes an array of its objects, and what is told of writes to them.
_converters: dict[type, Callable[[Any], Array]] = {}
_writes: dict[type, Callable[[Any], object]] = {}
_LONG = {np.longdouble: "longdouble", np.clongdouble: "clongdouble"}
_BY_KIND = {"M": "datetime64", "m": "timedelta64", "S": "bytes", "U": "str"}


def as_array(value: Any) -> Array:
    """Return `value` as an array that shares its memory.

    Raises:
        TypeError: It is a Python or NumPy scalar, a list, or nothing that shares memory.
    """
    if type(value) is np.ndarray:
        return value
    convert = _converters.get(type(value))
    if convert is not None:
        return convert(value)
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return value.view(np.ndarray)
    _refuse_copies(value)
    try:
        array = _shared(value)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise TypeError(
            f"cannot share the memory of {with_article(_type_name(value))}: {error}{_remedy(value)}"
        ) from error
    if array is None:
        what = with_article(_type_name(value))
        raise TypeError(f"{what} is not an array and does not share its memory{_remedy(value)}")
    return array


def is_registered(value: Any) -> bool:
    """Tell whether a library has registered the type of an object: see `register_array_type`."""
    return type(value) in _converters


def tell_of_write(value: Any) -> None:
    """Tell the library that an array belongs to, if it has asked for that, that a call is about to write to it."""
    told = _writes.get(type(value))
    if told is not None:
        told(value)


def register_array_type(
    kind: type[_T], convert: Callable[[_T], Array], written: Callable[[_T], object] | None = None
) -> None:
    """Make all calls accept objects of a type as arrays, faster than by the protocols for sharing memory.

    Args:
        kind: The type; its subclasses are not included.
        convert: Returns a `numpy.ndarray`, or an array of a device, that shares an object's memory, and keeps that
            alive for as long as it lives itself, or raises a `TypeError` that says why it cannot.
        written: Called with each object that a call is about to write to.

    Raises:
        ValueError: The type is one of NumPy's own arrays, or of a device's.

    Examples:
        >>> class Column:
        ...     def __init__(self, *values):
        ...         self.values = np.array(values)
        >>> dist.register_array_type(Column, lambda column: column.values)
        >>> column = Column(1, 2)
        >>> dist.init_process_group("gloo")
        >>> dist.all_reduce(column)
        >>> dist.destroy_process_group()
    """
    try:
        known: Any = kind  # which can be hashed
        if issubclass(kind, np.ndarray) or kind_of_type(known) is not None:
            raise ValueError(f"register_array_type: {kind.__qualname__} is an array already")
        _converters[kind] = convert
        if written is not None:
            _writes[kind] = written
    except BaseException as error:
        shorten(error)
        raise


def device_of(array: Array) -> str:
    """Return the kind of device that an array from `as_array` lies on: "cpu", or as a plugin calls its own."""
    kind = kind_of(array)
    return "cpu" if kind is None else kind.name


def as_bytes(array: Array) -> memoryview:
    """Return the memory of a C-contiguous NumPy array as a flat view of bytes, whatever its dtype."""
    # memoryview.cast knows neither datetime64 nor bfloat16; a view as uint8 knows all plain memory.
    return memoryview(array.reshape(-1).view(np.uint8)) if array.nbytes else memoryview(bytearray())


def as_copy(array: Array) -> Array:
    """Return a C-contiguous copy of an array, where it lies, with all its bytes.

    NumPy's own copies leave out what lies between fields.
    """
    kind = kind_of(array)
    if kind is not None:
        with on_device_of(array):
            return kind.copy(array)
    if array.dtype.names is None:
        return array.copy(order="C")
    return array.view(np.dtype((np.void, array.dtype.itemsize))).copy(order="C").view(array.dtype)


def assign(target: Array, source: Array) -> None:
    """Copy a NumPy array into another of its shape and dtype, with all its bytes."""
    if target.dtype.names is not None:  # of which NumPy would leave out what lies between fields
        whole = np.dtype((np.void, target.itemsize))
        target, source = target.view(whole), source.view(whole)
    target[...] = source


@dataclass(slots=True, eq=False)
class Coordinates:
    """A sparse array of any number of dimensions, for libraries whose sparse arrays are not scipy's.

    Attributes:
        shape: The shape.
        sparse_dims: How many dimensions, from the first on, are sparse; an element is an array of the others.
        places: Each element's place, counted row by row through the sparse dimensions, as 64-bit integers; sorted, and
            each place once.
        data: The elements, along the first dimension.
    """

    shape: tuple[int, ...]
    sparse_dims: int
    places: Array
    data: Array

    @property
    def dtype(self) -> np.dtype[Any]:
        """The elements' dtype."""
        dtype: np.dtype[Any] = self.data.dtype
        return dtype


def is_sparse(value: Any) -> bool:
    """Tell whether `value` is a sparse array, which is no array to any other function here."""
    kind: Any = type(value)
    return kind is not np.ndarray and _is_sparse_type(kind)


@lru_cache(maxsize=256)
def _is_sparse_type(kind: type) -> bool:
    return kind is Coordinates or any(base.__module__.startswith("scipy.sparse") for base in kind.__mro__)


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name under which the capability tables know `dtype`, one of `DTYPES` (or "object")."""
    if dtype in _NAMES:
        return _NAMES[dtype]
    if dtype.hasobject:
        return "object"
    if dtype.names is not None or dtype.subdtype is not None:
        return "structured"
    if dtype.type in _LONG:  # their own names tell the width, which differs between platforms
        return _LONG[dtype.type]
    if dtype.kind == "V" and dtype.type is np.void:
        return "void"
    return _BY_KIND.get(dtype.kind, str(dtype.name))


def _refuse_copies(value: Any) -> None:
    if isinstance(value, (list, tuple)):
        raise TypeError("a list is not an array; make one with numpy.array(...)")
    if isinstance(value, (bool, int, float, complex, str, np.generic)) or value is None:
        raise TypeError(f"{_type_name(value)} is not an array; make one with numpy.array(...)")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("a masked array would lose its mask; pass .data and .mask, or .filled()")


def _remedy(value: Any) -> str:
    """Return what a program can do with an object of another library; "" where nothing is known."""
    library = type(value).__module__.partition(".")[0]
    if (bridge := f"rankwise_{library}") in _BRIDGES:
        return f"; with `import {bridge}; {bridge}.install()` tensors of every dtype are taken"
    for name in ("to_numpy()", "values"):  # of pandas, polars and pyarrow; of xarray
        if hasattr(value, name.removesuffix("()")):
            return f"; pass its .{name}, and for an output put the result back"
    return ""


def _shared(value: Any) -> Array | None:
    kind = kind_of(value)
    if kind is not None:
        return kind.share(value)
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        return None


def _from_dlpack(value: Any) -> Array:
    number = int(value.__dlpack_device__()[0])
    if number != 1:
        raise TypeError(f"it lies on a device of DLPack's type {number}, which {not_brought()}")
    try:
        array = np.from_dlpack(value)
    except (BufferError, RuntimeError):  # NumPy's DLPack knows no bfloat16; JAX's arrays are those of ml_dtypes too
        if not hasattr(value, "__array__") or (array := np.asarray(value)).flags.writeable:
            raise  # that may be a copy, of which nobody would get what is written to it
        return array
    if not array.flags.writeable and hasattr(value, "__array__"):
        # Old capsules cannot say whether they may be written, and NumPy then takes them as read-only.
        other = np.asarray(value)
        if other.flags.writeable and np.shares_memory(array, other):
            return other
    return array


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# Names and marks of dtypes: how ranks tell each other which dtype they mean
#
# A mark is a 32-bit number that fits into any header. Two dtypes have the same mark if their arrays have the same bytes
# for the same values: byte order and the fields of structured types count.


@lru_cache(maxsize=256)
def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype's name in messages: ASCII, at most 200 characters, different for different dtypes."""
    if dtype in _NAMES:
        return _NAMES[dtype]
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


def is_known(dtype: np.dtype[Any]) -> bool:
    """Tell whether every rank knows a dtype by its mark."""
    # The first message of a program need not wait for a table of all.
    return (dtype.isbuiltin == 1 and dtype.char in _NATIVE) or dtype_mark(dtype) in _known()


def dtype_marked(mark: int) -> np.dtype[Any] | None:
    """Return the dtype with a mark, if it is one that every rank knows."""
    name = known_dtype(mark)
    try:
        return None if name is None else np.dtype(name)
    except TypeError:  # of a library that is not loaded here
        return None


def plain_text(text: str) -> str:
    """Return a text whose JSON has as many bytes as it has characters, or nearly so."""
    return text.encode("ascii", "replace").decode()


def _hash(text: str) -> int:
    return crc32(text.encode())


#: The letters of the numbers that NumPy itself has.
_NATIVE = "?bBhHiIlLqQefdgFDG"


@lru_cache(maxsize=1)
def _known() -> dict[int, str]:
    native = [np.dtype(letter) for letter in _NATIVE]
    both = [order for dtype in native for order in (dtype, dtype.newbyteorder())]
    return {dtype_mark(dtype): dtype_text(dtype) for dtype in both}


#: The mark of plain bytes, as which a message of any dtype may be received.
RAW = dtype_mark(np.dtype(np.uint8))
