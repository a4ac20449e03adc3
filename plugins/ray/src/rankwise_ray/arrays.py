"""Tensors as arrays: those of NumPy and CuPy as they are, torch's on the CPU by their memory, and read-only ones.

All arrays that a task or an actor is called with are read-only. Ray's own CPU backend writes into them nevertheless,
and its users count on that. Small ones are this process's own memory. Those that lie in Ray's object store are seen by
every process of the node that was given them, so that a write there is said once.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from contextlib import suppress
from typing import Any

import numpy as np

READONLY = "RANKWISE_RAY_READONLY"
_CHOICES = ("write", "refuse")


def to_array(tensor: Any, written: bool = False) -> Any:
    """Return the array of a tensor's memory.

    Args:
        tensor: An array of NumPy or CuPy, or a tensor of torch on the CPU.
        written: Whether the call writes into it.

    Raises:
        ValueError: It is read-only, and not to be written to.
        TypeError: It lies where no array of ours can.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return _of_torch(tensor, torch)
    if written and isinstance(tensor, np.ndarray) and not tensor.flags.writeable:
        return _writable(tensor)
    return tensor


def _of_torch(tensor: Any, torch: Any) -> Any:
    if tensor.device.type != "cpu":
        raise TypeError(
            f"rankwise takes tensors of torch on the CPU, not on {tensor.device}; give a CuPy array of its memory "
            "(cupy.from_dlpack), or use Ray's backend NCCL"
        )
    tensor = tensor.detach()
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def _writable(array: Any) -> Any:
    choice = os.environ.get(READONLY, "write")
    if choice not in _CHOICES:
        raise ValueError(f"{READONLY}={choice}: expected one of {', '.join(_CHOICES)}")
    if choice == "refuse":
        raise ValueError(
            "the array is read-only, as all arrays are that Ray hands to a task or an actor; copy it first"
        )
    if array.size == 0:
        return np.empty(array.shape, array.dtype)
    steps = [(count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True)]
    before, behind = -sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
    nbytes = before + behind + array.itemsize
    at: Any = array.ctypes.data - before
    mapped = _mapped(at, at + nbytes)
    if any("w" not in rights for rights, _ in mapped):
        raise ValueError(
            "the array's memory cannot be written to, as it is mapped read-only (mmap_mode='r'); pass a copy, "
            "`copy = numpy.array(it)`, and take the result from that"
        )
    if any("plasma" in path for _, path in mapped):
        warnings.warn(
            "rankwise writes into an array of Ray's object store, as Ray's own backend does; other processes of this "
            f"node that were given it see that. Copy it first; {READONLY}=refuse makes this an error",
            stacklevel=5,
        )
    memory: Any = (ctypes.c_char * nbytes).from_address(at)
    memory.owner = array  # which keeps the memory for as long as the view is there
    return np.ndarray(array.shape, array.dtype, memory, before, array.strides)


def _mapped(begin: int, end: int) -> list[tuple[str, str]]:
    """Return of each mapping of memory between two addresses what may be done with it, and its file."""
    found = []
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            where, rights, *more = line.split()
            low, _, high = where.partition("-")
            if int(low, 16) < end and begin < int(high, 16):
                found.append((rights, " ".join(more[3:])))
    return found
