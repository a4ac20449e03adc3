"""A stand-in for CuPy whose arrays lie on the host, for tests where there is no GPU; never installed.

Its arrays are no NumPy arrays, as CuPy's are not, so that rankwise takes them for arrays on a CUDA device. What is done
to them is done in the order of the current stream, which is a thread: one that forgets to wait reads old data.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from . import cuda

__all__ = ["ascontiguousarray", "asarray", "asnumpy", "cuda", "empty", "full", "ndarray", "ones", "zeros"]
__version__ = "0.0.host"

_CHARS = "?bhilqBHILQefdFD"


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array on a device that is none."""

    def __init__(self, host: Any, device: Any = None) -> None:
        self._host = host
        self.device = device if device is not None else cuda.Device()
        self.dtype, self.shape, self.size, self.ndim = host.dtype, host.shape, host.size, host.ndim
        self.nbytes, self.itemsize, self.strides = host.nbytes, host.itemsize, host.strides
        self.data = types.SimpleNamespace(ptr=host.ctypes.data)
        self.flags = types.SimpleNamespace(c_contiguous=host.flags.c_contiguous, f_contiguous=host.flags.f_contiguous)

    @property
    def __cuda_array_interface__(self) -> Any:
        # All that rankwise asks of it is whether it is there.
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False), "version": 3}

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        """Copy to the host, behind what is on the stream."""
        copied = np.empty_like(self._host, order="C") if out is None else out
        _do(lambda: np.copyto(copied, self._host), stream, wait=blocking)
        return copied

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copy from the host, behind what is on the stream."""
        if arr.dtype != self.dtype or arr.shape != self.shape:
            raise ValueError("dtype and shape of the array on the host must be those of the array on the device")
        kept = arr.copy()
        _do(lambda: np.copyto(self._host, kept), stream)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **terms: Any) -> Any:
        if any(type(one) is np.ndarray and one.ndim for one in inputs):
            return NotImplemented  # as CuPy, which does not mix the two
        out = terms.pop("out", None)
        if out is not None:
            terms["out"] = tuple(one._host for one in out)
        _are_here([*inputs, *(out or ())])
        return self._wrapped(lambda: getattr(ufunc, method)(*map(_host, inputs), **terms), out)

    def __array_function__(self, function: Any, kinds: Any, args: Any, terms: Any) -> Any:
        _are_here(list(args))
        return self._wrapped(lambda: function(*map(_host, args), **{name: _host(one) for name, one in terms.items()}))

    def __getitem__(self, key: Any) -> Any:
        found = self._host[key]
        if not isinstance(found, np.ndarray):  # CuPy gives views only, never scalars
            found = self._host[(*_tuple(key), None)].reshape(())
        return ndarray(found, self.device)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        _are_here([self, value])
        _do(lambda: self._host.__setitem__(key, _host(value)))

    def __len__(self) -> int:
        return len(self._host)

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __getattr__(self, name: str) -> Any:
        if name not in ("astype", "reshape", "view", "sum", "max", "min", "all", "ravel", "real"):
            raise AttributeError(name)
        found = getattr(self._host, name)
        if not callable(found):
            return ndarray(np.asarray(found), self.device)
        if name not in ("reshape", "view", "ravel"):
            _are_here([self])
        return lambda *args, **terms: self._wrapped(lambda: getattr(self._host, name)(*args, **terms))

    def copy(self, order: str = "C") -> ndarray:
        """Return a copy on the current device, wherever this array is."""
        return ndarray(self.get())

    def item(self) -> Any:
        """Return the only element."""
        return self.get().item()

    def tolist(self) -> Any:
        """Return the content as lists."""
        return self.get().tolist()

    def __repr__(self) -> str:
        return f"cupy.ndarray({self._host!r})"

    def _wrapped(self, compute: Any, out: Any = None) -> Any:
        cuda.get_current_stream().synchronize()
        found = compute()
        return out[0] if out is not None else ndarray(np.asarray(found), self.device)


def asarray(array: Any, dtype: Any = None) -> ndarray:
    """Copy an array of the host to the device; one of the device stays what it is."""
    if isinstance(array, ndarray):
        return array
    host = np.array(array, dtype, order="C")
    if host.dtype.char not in _CHARS and host.dtype.name != "bfloat16":
        raise ValueError(f"Unsupported dtype {host.dtype}")
    return ndarray(host)


def ascontiguousarray(array: Any) -> ndarray:
    """Return a contiguous array on the device."""
    return array.copy() if isinstance(array, ndarray) and not array.flags.c_contiguous else asarray(array)


def asnumpy(array: Any) -> Any:
    """Return an array of the device as one of the host."""
    return array.get() if isinstance(array, ndarray) else np.asarray(array)


def empty(shape: Any, dtype: Any = float) -> ndarray:
    """Return an array of unknown content."""
    return ndarray(np.empty(shape, dtype))


def zeros(shape: Any, dtype: Any = float) -> ndarray:
    """Return an array of zeros."""
    return ndarray(np.zeros(shape, dtype))


def ones(shape: Any, dtype: Any = float) -> ndarray:
    """Return an array of ones."""
    return ndarray(np.ones(shape, dtype))


def full(shape: Any, value: Any, dtype: Any = None) -> ndarray:
    """Return an array full of a value."""
    return ndarray(np.full(shape, value, dtype))


def _are_here(values: Any) -> None:
    """Raise as CuPy does where one GPU cannot read the memory of another."""
    for value in values:
        if isinstance(value, (list, tuple)):
            _are_here(value)
        elif isinstance(value, ndarray) and value.device != cuda.Device():
            raise ValueError(f"Array device must be same as the current device: array device = {value.device.id}")


def _host(value: Any) -> Any:
    if isinstance(value, ndarray):
        return value._host
    return type(value)(map(_host, value)) if isinstance(value, (list, tuple)) else value


def _tuple(key: Any) -> Any:
    return key if isinstance(key, tuple) else (key,)


def _do(task: Any, stream: Any = None, wait: bool = False) -> None:
    """Put a task on a stream."""
    stream = stream if stream is not None else cuda.get_current_stream()
    stream.put(task)
    if wait:
        stream.synchronize()
