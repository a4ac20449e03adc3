"""How one reduction is asked of NCCL: type, op, and the factor of PREMUL_SUM."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from rankwise.backends import Array, ReduceOp, dtype_name
from rankwise.errors import UnsupportedOperationError
from rankwise_nccl.library.api import Api
from rankwise_nccl.library.datatypes import FLOAT8, reduction
from rankwise_nccl.library.float8 import has_float8
from rankwise_nccl.library.premul import premultiplied


class Reducer:
    """One reduce op on one dtype.

    Attributes:
        datatype: The ncclDataType_t.
        width: How many of NCCL's elements make one of the array's.
        plain: The ncclRedOp_t, or None where it has to be made for each call.
    """

    __slots__ = ("_dtype", "_factor", "_given", "_op", "datatype", "plain", "width")

    def __init__(self, op: ReduceOp, array: Array, api: Api) -> None:
        self._dtype = array.dtype
        if dtype_name(array.dtype) in FLOAT8:
            _require_float8(api, array)
        self.datatype, self._op, self.width = reduction(op, array.dtype)
        self._factor = _scalar(op.factor)
        self.plain = self._op if op.name != "PREMUL_SUM" else None
        self._given = nullcontext(self._op)

    def number(self, comm: Any) -> AbstractContextManager[int]:
        """Give the ncclRedOp_t, which is there until the block ends."""
        if self.plain is not None:
            return self._given
        return premultiplied(comm, self._factor, self._dtype, self.datatype)


def _scalar(factor: Any) -> Any:
    """Return a factor as a scalar of the host; one on the device is fetched."""
    if factor is None or isinstance(factor, (int, float)):
        return factor
    if getattr(factor, "size", 1) != 1 or not hasattr(factor, "item"):
        raise TypeError(f"PREMUL_SUM on the nccl backend takes one number as its factor, not {factor!r:.100}")
    return np.asarray(factor.item())[()]


def _require_float8(api: Api, array: Array) -> None:
    """Raise unless the array's own GPU does it; the table tells of the current one."""
    version, capability = api.nccl.get_version(), api.cuda.Device(array.device.id).compute_capability
    if not has_float8(version, capability):
        raise UnsupportedOperationError(
            f"NCCL reduces {array.dtype} from version 2.24 on and on GPUs of compute capability 9.0 or newer; "
            f"here are version code {version} and capability {int(capability) / 10:.1f}"
        )
