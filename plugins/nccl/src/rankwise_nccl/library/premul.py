"""NCCL's own PREMUL_SUM, which CuPy has no call for: made and given back through the library that CuPy has loaded."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rankwise.errors import DistBackendError
from rankwise_nccl.library.binding import load as _library

#: ncclScalarHostImmediate: the factor is read within the call, from the host.
_HOST_IMMEDIATE = 1


def is_there() -> bool:
    """Tell whether the library has it."""
    return _library() is not None


@contextmanager
def premultiplied(comm: Any, factor: Any, dtype: np.dtype[Any], datatype: int) -> Iterator[int]:
    """Give the number of an op that multiplies by `factor` before it sums; it is there until the block ends.

    Args:
        comm: CuPy's communicator.
        factor: A scalar.
        dtype: The array's dtype.
        datatype: The same in NCCL's words.
    """
    library = _library()
    if library is None:
        raise DistBackendError("there is no ncclRedOpCreatePreMulSum: it came with NCCL 2.11")
    scalar = np.asarray(factor, dtype).reshape(1)
    op = ctypes.c_int()
    status = library.ncclRedOpCreatePreMulSum(
        ctypes.byref(op), scalar.ctypes.data, datatype, _HOST_IMMEDIATE, comm.comm
    )
    if status:
        raise DistBackendError(f"ncclRedOpCreatePreMulSum failed with status {status}")
    try:
        yield op.value
    finally:
        # NCCL keeps the factor of calls that have been made, even where they are still in an open group.
        library.ncclRedOpDestroy(op, comm.comm)
