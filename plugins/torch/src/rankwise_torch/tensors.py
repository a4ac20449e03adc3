"""Tensors as arrays that share their memory, for about half a microsecond each.

Why by address: `Tensor.numpy()` makes the storage impossible to resize for good, which breaks FSDP, and DLPack takes
ten microseconds and has no bfloat16. The array holds the tensor, and so its memory, until nobody uses the array.

Arrays are flat. torch compares no shapes between ranks, so a row and a column of as many elements belong together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

__all__ = ["Filled", "dtype_of", "filled", "put_back", "read", "shared"]

#: A result's tensor and the array that stands in for it until the operation has ended.
Filled = tuple[torch.Tensor, torch.Tensor]

_BY_NAME = """
    bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
""".split()  # noqa: SIM905 - a list of names reads better as text
_OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")

_dtypes: dict[Any, np.dtype[Any]] = {getattr(torch, name): np.dtype(name) for name in _BY_NAME}


class _Memory(ctypes.Array):  # type: ignore[type-arg] # it is generic for type checkers alone
    """All memory from some address on; the array made of it says how much it uses."""

    _type_ = ctypes.c_char
    _length_ = 1 << 46
    __slots__ = ("tensor",)
    tensor: torch.Tensor


_at: Callable[[int], Any] = _Memory.from_address


def read(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor's elements for an operation that only reads them; a copy if they do not lie in order."""
    return _view(tensor if _is_plain(tensor) else _in_order(tensor))


def shared(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an array of its shape, for rankwise's own calls.

    Raises:
        TypeError: It is not one that can be shared, and why.
    """
    if tensor.layout is not torch.strided or not tensor.is_cpu or tensor.is_neg() or tensor.is_conj():
        raise TypeError(f"a tensor of layout {tensor.layout} on {tensor.device}, or conjugated, has no memory to share")
    memory = _at(tensor.data_ptr())
    memory.tensor = tensor
    dtype = dtype_of(tensor)
    strides = tuple(step * dtype.itemsize for step in tensor.stride())
    array: np.ndarray[Any, Any] = np.ndarray(tuple(tensor.shape), dtype, memory, strides=strides)
    return array


def filled(tensor: torch.Tensor, copies: list[Filled]) -> np.ndarray[Any, Any]:
    """Return a tensor's elements for an operation that writes to them.

    Where they do not lie in order it is a copy, which is added to `copies` with the tensor that `put_back` fills.
    """
    if _is_plain(tensor):
        return _view(tensor)
    copy = _in_order(tensor)
    copies.append((tensor, copy))
    return _view(copy)


def put_back(copies: Sequence[Filled]) -> None:
    """Copy results to where they belong, once the operation has ended."""
    for tensor, copy in copies:
        tensor.detach().copy_(copy)


def dtype_of(tensor: torch.Tensor) -> np.dtype[Any]:
    """Return the dtype of a tensor's array; bytes for what NumPy knows no arithmetic of, such as quantized numbers."""
    if tensor.dtype not in _dtypes:
        _dtypes[tensor.dtype] = _uncommon(tensor.dtype)
    found: np.dtype[Any] = _dtypes[tensor.dtype]
    return found


def _uncommon(dtype: torch.dtype) -> np.dtype[Any]:
    name = str(dtype).partition(".")[2]
    if name in _OF_ML_DTYPES:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    return np.dtype((np.void, dtype.itemsize))


def _is_plain(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's memory holds its elements, one after the other, and nothing else."""
    if not tensor.is_cpu:
        raise RuntimeError(
            f"a tensor on {tensor.device} was given to a group whose backend serves the CPU; "
            "name a backend for each device, as in 'cpu:rankwise,cuda:nccl'"
        )
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def _in_order(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _view(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    memory = _at(tensor.data_ptr())
    memory.tensor = tensor
    known = _dtypes.get(tensor.dtype)
    view: np.ndarray[Any, Any] = np.ndarray((tensor.numel(),), dtype_of(tensor) if known is None else known, memory)
    return view
