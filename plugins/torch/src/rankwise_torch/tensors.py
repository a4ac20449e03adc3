"""Tensors as arrays that share their memory, for about a microsecond each.

Which tensors have memory to share, only torch knows: a tensor may stand for another, for several, or for none. So torch
is asked, by the keys that its own dispatcher goes by. A tensor with the keys of a dense tensor on the CPU and no others
is used where it lies, one that is only seen through a sign or a conjugation is copied, and every other is refused.

Why by address: `Tensor.numpy()` makes the storage impossible to resize for good, which breaks FSDP, and DLPack takes
ten microseconds and has no bfloat16. The array holds the tensor, and so its memory, until nobody uses the array.

Arrays are flat. torch compares no shapes between ranks, so a row and a column of as many elements belong together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import DispatchKey
from torch._C import DisableTorchFunction, DispatchKeySet, _increment_version
from torch._C import _dispatch_keys as _keys_of

import rankwise
from rankwise.backends import Reordered, reordered

_Array = np.ndarray[Any, Any]

_BY_NAME = """
    bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
""".split()  # noqa: SIM905 - a list of names reads better as text
_OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")

_dtypes: dict[Any, np.dtype[Any]] = {getattr(torch, name): np.dtype(name) for name in _BY_NAME}


def _bits(names: str) -> int:
    """Return the bits of dispatch keys in the number that stands for a set of them."""
    found = 0
    for name in names.split():
        found |= DispatchKeySet(getattr(DispatchKey, name)).raw_repr()
    return found


#: What is not of a dense tensor on the CPU.
_ODD = ~_bits("CPU AutogradCPU ADInplaceOrView AutocastCPU")
#: What says that values differ from what lies in memory: by a sign, by a conjugation, or as nothing lies there.
_NEGATIVE, _CONJUGATE, _ZERO = _bits("Negative"), _bits("Conjugate"), _bits("ZeroTensor")
#: What says that another tensor has the memory.
_WRAPPING = _bits("Python Functionalize FuncTorchGradWrapper FuncTorchBatched")
#: The classes whose methods nobody has changed.
_PLAIN = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}


class WrappedError(TypeError):
    """A tensor stands for another one, which torch's dispatcher may know."""


class Filled(NamedTuple):
    """What an operation fills in place of a tensor whose elements do not lie in order."""

    #: The tensor's own memory, and what will be there.
    place: _Array
    values: _Array
    #: The bits by which the tensor's values differ from its memory.
    seen_through: int

    def finish(self) -> None:
        """Copy the values to where they belong."""
        if self.seen_through & _CONJUGATE:
            np.conjugate(self.values, out=self.values)
        if self.seen_through & _NEGATIVE:
            np.negative(self.values, out=self.values)
        np.copyto(self.place, self.values)


class Averaged(NamedTuple):
    """A sum of integers of which the average is wanted: as NCCL has it, a whole number, rounded towards zero."""

    values: _Array
    divisor: int

    def finish(self) -> None:
        """Divide."""
        rest = np.remainder(self.values, self.divisor)
        np.floor_divide(self.values, self.divisor, out=self.values)
        if self.values.dtype.kind == "i":
            np.add(self.values, (rest != 0) & (self.values < 0), out=self.values, casting="unsafe")


class Ending(Protocol):
    """What is left to be done once an operation has ended."""

    def finish(self) -> None:
        """Do it."""


class _Memory(ctypes.Array):  # type: ignore[type-arg] # it is generic for type checkers alone
    """All memory from some address on; the array made of it says how much it uses."""

    _type_ = ctypes.c_char
    _length_ = 1 << 46
    __slots__ = ("tensor",)
    tensor: torch.Tensor


_at: Callable[[int], Any] = _Memory.from_address


def read(tensor: torch.Tensor) -> _Array:
    """Return a tensor's elements for an operation that only reads them; a copy if they do not lie in order.

    Raises:
        WrappedError: It stands for another one.
        TypeError: It has no elements in this process's memory.
    """
    if type(tensor) in _PLAIN and not _keys_of(tensor).raw_repr() & _ODD and tensor.is_contiguous():
        return _view(tensor)
    with DisableTorchFunction():
        odd = _asked(tensor)
        return _view(tensor) if not odd and tensor.is_contiguous() else _view(_in_order(tensor))


def filled(tensor: torch.Tensor, copies: list[Ending]) -> _Array:
    """Return a tensor's elements for an operation that writes to them, and have autograd know that it does.

    Where they do not lie in order it is a copy, which is added to `copies` for `put_back`.

    Raises:
        WrappedError: It stands for another one.
        TypeError: It has no elements in this process's memory, or some share theirs.
    """
    if type(tensor) in _PLAIN and not _keys_of(tensor).raw_repr() & _ODD and tensor.is_contiguous():
        written(tensor)
        return _view(tensor)
    with DisableTorchFunction():
        odd = _asked(tensor)
        if not odd and tensor.is_contiguous():
            written(tensor)
            return _view(tensor)
        if odd & _ZERO:
            raise TypeError("a tensor that only stands for zeros cannot be written to; clone() it first")
        if odd and dtype_of(tensor).kind == "V":
            raise TypeError(f"a conjugated tensor of {tensor.dtype} cannot be written to; call resolve_conj() first")
        _check_distinct(tensor)
        written(tensor)
        values = _view(_in_order(tensor))
        copies.append(Filled(_shaped(tensor), values.reshape(tuple(tensor.shape)), odd))
        return values


def read_there(tensor: torch.Tensor, group: rankwise.ProcessGroup) -> _Array | Reordered:
    """Return what `read` does; of a dense tensor its memory, for a collective that works on that.

    Args:
        tensor: The tensor.
        group: The group that makes the call.
    """
    if type(tensor) in _PLAIN and not _keys_of(tensor).raw_repr() & _ODD and tensor.is_contiguous():
        return _view(tensor)
    found = _by_memory(tensor, group)
    return read(tensor) if found is None else found


def filled_there(tensor: torch.Tensor, copies: list[Ending], group: rankwise.ProcessGroup) -> _Array | Reordered:
    """Return what `filled` does; of a dense tensor its memory, for a collective that works on that.

    Args:
        tensor: The tensor.
        copies: What is put back.
        group: The group that makes the call.
    """
    if type(tensor) in _PLAIN and not _keys_of(tensor).raw_repr() & _ODD and tensor.is_contiguous():
        written(tensor)
        return _view(tensor)
    found = _by_memory(tensor, group)
    if found is None:
        return filled(tensor, copies)
    written(tensor)
    return found


def memory_of(array: _Array | Reordered) -> _Array:
    """Return the memory that `read_there` or `filled_there` tells of, as an array."""
    return array.memory if isinstance(array, Reordered) else array


def _by_memory(tensor: torch.Tensor, group: rankwise.ProcessGroup) -> Reordered | None:
    with DisableTorchFunction():
        if _asked(tensor) or tensor.is_contiguous() or not group.compares_calls():
            return None
        return reordered(_shaped(tensor), flat=True)


def written(tensor: torch.Tensor) -> None:
    """Count a tensor's version up, so that no backward pass takes what is about to be overwritten for what it saved."""
    _increment_version((tensor,))


def put_back(copies: Iterable[Ending]) -> None:
    """Do what is left once the operation has ended, such as to copy results to where they belong; any thread may."""
    for part in copies:
        part.finish()


def shared(tensor: torch.Tensor) -> _Array:
    """Return a tensor as an array of its shape, for rankwise's own calls.

    Raises:
        TypeError: It is not one that can be shared, and why.
    """
    with DisableTorchFunction():
        try:
            odd = _asked(tensor)
        except RuntimeError as error:
            raise TypeError(f"it has no memory to share: {error}") from error
        if odd:
            raise TypeError("a conjugated or negative view has no memory to share; resolve_conj() or resolve_neg() it")
        return _shaped(tensor)


def dtype_of(tensor: torch.Tensor) -> np.dtype[Any]:
    """Return the dtype of a tensor's array; bytes for what NumPy knows no arithmetic of."""
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


def _asked(tensor: torch.Tensor) -> int:
    """Return the bits by which a dense tensor's values differ from its memory; 0 if they do not.

    Raises:
        WrappedError: It stands for another one.
        TypeError, RuntimeError: It is of another kind, or on another device.
    """
    keys = _keys_of(tensor)
    odd: int = keys.raw_repr() & _ODD
    if not odd & ~(_NEGATIVE | _CONJUGATE | _ZERO):
        return odd
    kind = type(tensor).__name__
    if odd & (_WRAPPING if tensor.device.type == "cpu" else _bits("Python")):
        raise WrappedError(
            f"a {kind} ({keys}) stands for another tensor and has no elements of its own; "
            "pass the one that it wraps, such as its to_local(), full_tensor() or wait()"
        )
    if tensor.device.type != "cpu":
        # Of calls on meta, where no elements are, torch's dispatcher knows what comes.
        raise (WrappedError if tensor.is_meta else RuntimeError)(
            f"a tensor on {tensor.device} was given to a group whose backend serves the CPU, where it has no memory to "
            "share; name a backend for each device, as in 'cpu:rankwise,cuda:nccl'"
        )
    raise TypeError(
        f"a {'quantized' if tensor.is_quantized else 'nested' if tensor.is_nested else tensor.layout} tensor ({keys}) "
        "has no memory to share that holds its elements and nothing else; pass its dense parts"
    )


def _in_order(tensor: torch.Tensor) -> torch.Tensor:
    _check_storage(tensor, _extent(tensor))
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _view(tensor: torch.Tensor) -> _Array:
    count = tensor.numel()
    known = _dtypes.get(tensor.dtype)
    dtype = dtype_of(tensor) if known is None else known
    if tensor.untyped_storage().nbytes() < (tensor.storage_offset() + count) * dtype.itemsize:
        _check_storage(tensor, count)
    memory = _at(tensor.data_ptr())
    memory.tensor = tensor
    view: _Array = np.ndarray((count,), dtype, memory)
    return view


def _shaped(tensor: torch.Tensor) -> _Array:
    """Return a tensor's memory as an array of its shape and strides."""
    _check_storage(tensor, _extent(tensor))
    memory = _at(tensor.data_ptr())
    memory.tensor = tensor
    dtype = dtype_of(tensor)
    strides = tuple(step * dtype.itemsize for step in tensor.stride())
    array: _Array = np.ndarray(tuple(tensor.shape), dtype, memory, strides=strides)
    return array


def _extent(tensor: torch.Tensor) -> int:
    """Return how many elements lie between a tensor's first and its last, with both."""
    if not tensor.numel():
        return 0
    steps: int = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return 1 + steps


def _check_storage(tensor: torch.Tensor, extent: int) -> None:
    """Raise if a tensor's storage was freed or cut, as FSDP does with that of parameters it has sharded."""
    if not extent:
        return
    needed = (tensor.storage_offset() + extent) * tensor.dtype.itemsize
    if not tensor._is_zerotensor() and tensor.untyped_storage().nbytes() < needed:
        raise RuntimeError(
            f"a tensor of shape {list(tensor.shape)} needs {needed} bytes, but its storage has "
            f"{tensor.untyped_storage().nbytes()}: it was freed, or resized"
        )


def _check_distinct(tensor: torch.Tensor) -> None:
    """Raise unless each element of a tensor has a place of its own, as far as strides show it."""
    reach = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step <= reach:
                raise TypeError(
                    f"elements of a tensor of shape {list(tensor.shape)} and strides {list(tensor.stride())} share "
                    "their memory, so that no result can be written there; clone() it first"
                )
            reach += (size - 1) * step
