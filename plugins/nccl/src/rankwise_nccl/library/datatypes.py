"""What NCCL calls the dtypes and reduce ops, as data.

Moving data needs no types: all of it travels as bytes. Only a reduction has to know what its elements are.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from rankwise.backends import ReduceOp, dtype_name
from rankwise.errors import UnsupportedOperationError

#: The numbers of ncclDataType_t. CuPy has names for most, NCCL 2.24 has the last two.
TYPES: Mapping[str, int] = MappingProxyType(
    {
        "int8": 0,
        "uint8": 1,
        "int32": 2,
        "uint32": 3,
        "int64": 4,
        "uint64": 5,
        "float16": 6,
        "float32": 7,
        "float64": 8,
        "bfloat16": 9,
        "float8_e4m3fn": 10,
        "float8_e5m2": 11,
    }
)
BYTE = TYPES["uint8"]
FLOAT8 = frozenset({"float8_e4m3fn", "float8_e5m2"})

#: The numbers of ncclRedOp_t.
_SUM, _PRODUCT, _MAX, _MIN, _AVG = 0, 1, 2, 3, 4
_OPS = {"SUM": _SUM, "PRODUCT": _PRODUCT, "MAX": _MAX, "MIN": _MIN, "AVG": _AVG, "PREMUL_SUM": _SUM}

#: What the reduce ops mean for truth values, which are bytes of 0 or 1.
_BOOL_OPS = {"SUM": _MAX, "PRODUCT": _MIN, "MAX": _MAX, "MIN": _MIN, "BOR": _MAX, "BAND": _MIN}

_PAIRS = {"complex64": "float32", "complex128": "float64"}

_FLOATS = frozenset(name for name in TYPES if "float" in name)
_REALS = frozenset(TYPES)
_COMPLEX = frozenset(_PAIRS)
_BOOL = frozenset({"bool"})

#: The dtypes that each reduce op takes, for the capability table.
REDUCTIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "SUM": _REALS | _COMPLEX | _BOOL,
        "AVG": _FLOATS | _COMPLEX,
        "PRODUCT": _REALS | _BOOL,
        "MIN": _REALS | _BOOL,
        "MAX": _REALS | _BOOL,
        "BAND": _BOOL,
        "BOR": _BOOL,
        "PREMUL_SUM": _FLOATS,
    }
)


class Reduction(NamedTuple):
    """A reduction in NCCL's words.

    Attributes:
        datatype: The ncclDataType_t.
        op: The ncclRedOp_t; for PREMUL_SUM that of the sum, to which the factor is still to be added.
        width: How many of NCCL's elements make one of the array's.
    """

    datatype: int
    op: int
    width: int = 1


def reduction(op: ReduceOp, dtype: np.dtype[np.generic]) -> Reduction:
    """Return how NCCL does what `REDUCTIONS` says that it does."""
    name = dtype_name(dtype)
    if name not in REDUCTIONS.get(op.name, frozenset()):
        raise UnsupportedOperationError(f"NCCL has no {op.name} of {name}")
    if name == "bool":
        return Reduction(BYTE, _BOOL_OPS[op.name])
    if name in _PAIRS:
        return Reduction(TYPES[_PAIRS[name]], _OPS[op.name], 2)
    return Reduction(TYPES[name], _OPS[op.name])
