"""What NCCL needs to reduce float8."""

from __future__ import annotations

from rankwise.backends import Condition

#: The version of NCCL, and the compute capability as CuPy writes it.
_NCCL, _GPU = 22400, 90


def has_float8(version: int, capability: str) -> bool:
    """Tell whether a version of NCCL reduces float8 on a GPU."""
    return version >= _NCCL and int(capability) >= _GPU


def _is_here() -> bool:
    from cupy import cuda
    from cupy.cuda import nccl

    return has_float8(nccl.get_version(), cuda.Device().compute_capability)


FLOAT8_CONDITION = Condition("needs NCCL 2.24 and a GPU of compute capability 9.0", _is_here)
