"""Devices: what a plugin says of its kind of device, and what is done with arrays wherever they lie.

Arrays of NumPy are on the host, where nothing here has anything to do but to copy. What else there is, installed
distributions bring: each a `DeviceKind`, named by an entry point. None is loaded before an array is met that lies
elsewhere, or its name is asked about.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from rankwise.basics import entry_points
from rankwise.basics.entry_points import one_line
from rankwise.basics.tracebacks import anew, libraries
from rankwise.errors import PluginError

#: The entry points of kinds of devices; their names are the kinds'.
DEVICES_GROUP = "rankwise.devices"


class DeviceKind:
    """A kind of device: what its arrays are, how they are copied, and in which order things happen to them.

    A plugin subclasses this, and names an instance by an entry point of the group `rankwise.devices`, whose name is the
    kind's. Its module is imported when such an array is met, and should import the device's library only in methods.

    Arrays have `dtype`, `shape`, `size`, `ndim`, `nbytes`, `itemsize` and `flags.c_contiguous`, and share their memory
    with what their `reshape`, `view(dtype)` and slices return. What is copied is C-contiguous, and comes as bytes.

    Attributes:
        name: The kind, as programs spell it: "xpu".
        modules: The top-level modules of the types of its arrays and devices, and others of its library's.
        dlpack: Its device types in DLPack, so that other libraries' arrays are taken.
        protocol: An attribute by which other libraries' objects share memory on such a device.
        computes: NumPy's functions compute on its arrays, by NumPy's protocols; else reductions go by way of the host.
    """

    name: ClassVar[str] = ""
    modules: ClassVar[Collection[str]] = ()
    dlpack: ClassVar[Collection[int]] = ()
    protocol: ClassVar[str] = ""
    computes: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"<DeviceKind {self.name!r}>"

    def why_not(self) -> str:
        """Return why there is no such device on this machine, or "" if there is one."""
        return ""

    def count(self) -> int:
        """Return how many there are, if there is one."""
        return 1

    def share(self, value: Any) -> Any:
        """Return an array that shares the memory of `value`, which has been recognised as one of this kind.

        Raises:
            TypeError: It cannot; the message says why.
        """
        return value

    def index(self, array: Any) -> int:
        """Return which device of its kind an array lies on."""
        return 0

    def address(self, array: Any) -> int:
        """Return where an array's memory begins, as a number that no other memory has, be it of the host."""
        raise NotImplementedError

    def empty(self, shape: Any, dtype: Any) -> Any:
        """Return a new array on the current device."""
        raise NotImplementedError

    def get(self, array: Any, host: np.ndarray[Any, Any]) -> None:
        """Copy bytes to the host, behind what the current queue has to do; they are there on return."""
        raise NotImplementedError

    def put(self, array: Any, host: np.ndarray[Any, Any]) -> None:
        """Copy bytes from the host, behind what the current queue has to do; every queue finds them on return."""
        raise NotImplementedError

    def copy(self, array: Any) -> Any:
        """Return a C-contiguous copy of an array on the current device, whichever it lies on; by way of the host.

        Raises:
            BufferError: The array is not C-contiguous, and this device copies no other.
        """
        if not array.flags.c_contiguous:
            raise BufferError(f"is not C-contiguous, and {self.name} copies no other arrays; pass one that is")
        copied = self.empty(array.shape, array.dtype)
        with on_device_of(array):
            host = to_host(array)
        self.put(raw(copied), raw(host))
        return copied

    def current(self, index: int) -> AbstractContextManager[Any]:
        """Make a device the current one of this thread."""
        return nullcontext()

    def queue(self) -> AbstractContextManager[Any]:
        """Give this thread a queue of its own on the current device, in which nothing waits for what others do."""
        return nullcontext()

    def mark(self) -> Callable[[], bool]:
        """Mark what the current queue has to do, and return what tells whether that is done."""
        return lambda: True

    def synchronize(self) -> None:
        """Wait for what this thread has put into the current queue."""


#: What has been loaded, by name, or why it cannot be used.
_loaded: dict[str, DeviceKind | PluginError] = {}


def device_names() -> list[str]:
    """Return the kinds of devices that there are here: the host, and what is installed; none is loaded."""
    return list(dict.fromkeys(["cpu", *_names(tuple(sys.path)), *_loaded]))


def device_kind_named(name: str) -> DeviceKind | None:
    """Return the kind of this name, if something installed brings it.

    Raises:
        PluginError: What brings it cannot be used.
    """
    if name == "cpu":
        return None
    if name not in _loaded:
        path = tuple(sys.path)
        brought = _brought(path, name)
        if not brought:
            return None
        _loaded[name] = _load(name, brought)
    found = _loaded[name]
    if isinstance(found, PluginError):
        raise anew(found)
    return found


def kind_of(value: Any) -> DeviceKind | None:
    """Return the kind of device that an array, or what shares its memory, or a library's device, belongs to.

    Returns:
        None for what lies on the host, and for what nothing installed knows.
    """
    kind: Any = type(value)
    if kind is np.ndarray or value is None:
        return None
    return kind_of_type(kind) or _by_protocol(value)


@lru_cache(maxsize=256)
def kind_of_type(kind: type) -> DeviceKind | None:
    """Return the kind of device that all arrays of a type belong to."""
    top = kind.__module__.partition(".")[0]
    return None if top in ("builtins", "numpy") else next((each for each in _all() if top in each.modules), None)


def _by_protocol(value: Any) -> DeviceKind | None:
    if callable(ask := getattr(value, "__dlpack_device__", None)):
        number = int(ask()[0])
        return None if number == 1 else next((kind for kind in _all() if number in kind.dlpack), None)
    if hasattr(value, "__array_interface__"):
        return None
    return next((kind for kind in _all() if kind.protocol and hasattr(value, kind.protocol)), None)


def _all() -> Iterator[DeviceKind]:
    """Yield the kinds that can be used; one that cannot be is told by `device_kind_named`."""
    for name in device_names():
        with suppress(PluginError):
            if (found := device_kind_named(name)) is not None:
                yield found


def not_brought() -> str:
    """Return the end of a sentence about a kind of device that nothing brings here."""
    problems = []
    for name in device_names()[1:]:
        try:
            device_kind_named(name)
        except PluginError as error:
            problems.append(str(error))
    return "; ".join(["nothing installed brings, as rankwise-nccl brings cuda", *problems])


@lru_cache(maxsize=1)
def _names(path: tuple[str, ...]) -> list[str]:
    """Return what is found at a glance, by one look for each path: each array that is not NumPy's may ask."""
    return [name for name, _ in entry_points.declared(DEVICES_GROUP)]


@lru_cache(maxsize=64)
def _brought(path: tuple[str, ...], name: str) -> dict[str, str]:
    return entry_points.named(DEVICES_GROUP, name)


def _load(name: str, brought: dict[str, str]) -> DeviceKind | PluginError:
    try:
        if len(brought) > 1:
            raise LookupError("another distribution brings them too; uninstall all but one")
        (value,) = brought
        kind = entry_points.load(value)
        if not isinstance(kind, DeviceKind) or kind.name != name:
            raise TypeError(f"{value} is no DeviceKind called {name!r}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        owner = " and ".join(sorted(brought.values()))
        because = one_line(f"{type(error).__name__}: {error}")
        return PluginError(f"the devices {name!r} of {owner} cannot be used: {because}")
    libraries.update(kind.modules)
    return kind


# What is done with arrays, wherever they lie


def raw(array: Any) -> Any:
    """Return the memory of a C-contiguous array as a flat array of bytes, of which NumPy changes none on the way.

    Whatever looks at values may change them: `numpy.concatenate` makes byte orders native, and assignments between
    structures leave out what lies between their fields.
    """
    flat = array.reshape(-1)
    return flat.view(np.uint8) if array.dtype.itemsize else np.empty_like(flat, np.uint8, shape=(0,))


def _known(array: Any) -> DeviceKind:
    kind = kind_of(array)
    if kind is None:
        raise TypeError(f"{type(array).__module__}.{type(array).__qualname__} is an array of no device that is known")
    return kind


def on_device_of(array: Any) -> AbstractContextManager[Any]:
    """Make the device of an array the current one, where alone some libraries compute, and make arrays."""
    if type(array) is np.ndarray:
        return nullcontext()
    kind = _known(array)
    return kind.current(kind.index(array))


def to_host(array: Any) -> Any:
    """Return a C-contiguous array on the host, or a copy of one there, behind what the current queue has to do."""
    if type(array) is np.ndarray:
        return array
    host: np.ndarray[Any, Any] = np.empty(array.shape, array.dtype)
    if array.nbytes:
        with on_device_of(array):
            _known(array).get(raw(array), raw(host))
    return host


def to_device(array: Any, host: np.ndarray[Any, Any]) -> None:
    """Copy an array of the host into one of a device, of the same dtype and number of elements."""
    if array.nbytes:
        with on_device_of(array):
            _known(array).put(raw(array), raw(np.ascontiguousarray(host)))


def placed(host: np.ndarray[Any, Any], kind: DeviceKind | None, index: int | None = None) -> Any:
    """Return a copy of an array of the host on a device, the current one if no index is given."""
    if kind is None:
        return host
    with nullcontext() if index is None else kind.current(index):
        array = kind.empty(host.shape, host.dtype)
        to_device(array, host)
        return array


def empty_like(array: Any, shape: tuple[int, ...]) -> Any:
    """Return a new array of another shape on the device of an array."""
    kind = kind_of(array)
    with on_device_of(array):
        return np.empty(shape, array.dtype) if kind is None else kind.empty(shape, array.dtype)
