"""The device `cuda`, by way of CuPy: arrays of `cupy.ndarray`, and what shares its memory with one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from rankwise.backends import DeviceKind


class _Cuda(DeviceKind):
    name = "cuda"
    modules = ("cupy", "cupy_backends")
    dlpack = (2, 13)  # memory of a device, and memory that the driver moves
    protocol = "__cuda_array_interface__"
    computes = True

    def why_not(self) -> str:
        """Ask CuPy for its devices."""
        try:
            return "" if self.count() else "there is no GPU"
        except Exception as error:  # there is no CuPy, or no driver
            return f"there is no GPU: {type(error).__name__}: {error}"

    def count(self) -> int:
        """Return how many devices the process sees."""
        return int(_cupy().cuda.runtime.getDeviceCount())

    def share(self, value: Any) -> Any:
        """Return CuPy's own arrays as they are, and others' memory as one."""
        if type(value).__module__.partition(".")[0] in self.modules:
            return value
        try:
            cupy = _cupy()
        except ImportError as error:
            raise TypeError(f"it lies on a CUDA device, which needs CuPy: {error}") from error
        return cupy.asarray(value) if hasattr(value, self.protocol) else cupy.from_dlpack(value)

    def index(self, array: Any) -> int:
        """Return the device's number."""
        return int(array.device.id)

    def address(self, array: Any) -> int:
        """Return the address, which is of one space for all devices."""
        return int(array.data.ptr)

    def empty(self, shape: Any, dtype: Any) -> Any:
        """Return an array of bytes seen as `dtype`, as CuPy makes no more dtypes than it computes with."""
        dtype = np.dtype(dtype)
        return _cupy().empty((*_sizes(shape), dtype.itemsize), np.uint8).view(dtype).reshape(shape)

    def get(self, array: Any, host: np.ndarray[Any, Any]) -> None:
        """Copy on the current stream, and wait."""
        array.get(out=host)
        self.synchronize()

    def put(self, array: Any, host: np.ndarray[Any, Any]) -> None:
        """Copy on the current stream, and wait."""
        array.set(host)
        self.synchronize()

    def copy(self, array: Any) -> Any:
        """Copy from device to device."""
        if array.dtype.names is None:
            return array.copy(order="C")
        return array.view(np.dtype((np.void, array.dtype.itemsize))).copy(order="C").view(array.dtype)

    def current(self, index: int) -> AbstractContextManager[Any]:
        """Make it CuPy's current one."""
        device: AbstractContextManager[Any] = _cupy().cuda.Device(index)
        return device

    def queue(self) -> AbstractContextManager[Any]:
        """Make a stream that does not wait for the default one."""
        stream: AbstractContextManager[Any] = _cupy().cuda.Stream(non_blocking=True)
        return stream

    def mark(self) -> Callable[[], bool]:
        """Record an event."""
        event = _cupy().cuda.get_current_stream().record()
        return lambda: bool(event.done)

    def synchronize(self) -> None:
        """Wait for the current stream."""
        _cupy().cuda.get_current_stream().synchronize()


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def _cupy() -> Any:
    import cupy

    return cupy


CUDA = _Cuda()
