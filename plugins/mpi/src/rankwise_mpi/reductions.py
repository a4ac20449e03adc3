"""Which MPI datatype and op reduce arrays of a dtype exactly as NumPy would.

MPI's own ops serve where they give NumPy's result, bit for bit the same on every rank. The others go through an op
of ours over NumPy's ufuncs: minima and maxima of floats (NaN must win, whichever side it comes from) and of complex
numbers and times, products of complex numbers (a fused multiply-add is not commutative), sums of time spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from rankwise.backends import accumulation_dtype

__all__ = ["KERNELS", "Kernel"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """How arrays of one dtype are reduced.

    Attributes:
        datatype: The MPI type of one element.
        op: The MPI op.
        plain: The caller's array can be given to MPI as it is, and holds the result afterwards.
        widens: The reduction is done in another dtype.
    """

    datatype: MPI.Datatype
    op: MPI.Op
    plain: bool
    widens: bool


_TYPES: dict[str, MPI.Datatype] = {
    **{f"i{n}": getattr(MPI, f"INT{8 * n}_T") for n in (1, 2, 4, 8)},
    **{f"u{n}": getattr(MPI, f"UINT{8 * n}_T") for n in (1, 2, 4, 8)},
    "f4": MPI.FLOAT,
    "f8": MPI.DOUBLE,
    "g": MPI.LONG_DOUBLE,
    "c8": MPI.C_FLOAT_COMPLEX,
    "c16": MPI.C_DOUBLE_COMPLEX,
    "G": MPI.C_LONG_DOUBLE_COMPLEX,
}
_INTEGERS: dict[str, MPI.Op] = {
    "SUM": MPI.SUM,
    "PRODUCT": MPI.PROD,
    "MIN": MPI.MIN,
    "MAX": MPI.MAX,
    "BAND": MPI.BAND,
    "BOR": MPI.BOR,
    "BXOR": MPI.BXOR,
}
_SUMS = {"SUM": MPI.SUM, "AVG": MPI.SUM, "PREMUL_SUM": MPI.SUM}
#: A bool is a byte that is 0 or 1, and NumPy's sum of bools is "or".
_BOOLS = {**_INTEGERS, "SUM": MPI.BOR, "PRODUCT": MPI.BAND}
_NATIVE: dict[str, dict[str, MPI.Op]] = {
    "i": _INTEGERS,
    "u": _INTEGERS,
    "b": _BOOLS,
    "f": {**_SUMS, "PRODUCT": MPI.PROD},
    "c": _SUMS,
}
_UFUNCS = {"MIN": np.minimum, "MAX": np.maximum, "PRODUCT": np.multiply}

_dtypes: dict[int, np.dtype[Any]] = {}
_ops: dict[str, MPI.Op] = {}


class _Kernels(dict[tuple[str, np.dtype[Any]], Kernel]):
    """The kernels by name of the op and dtype, made when they are first asked for."""

    def __missing__(self, key: tuple[str, np.dtype[Any]]) -> Kernel:
        made = self[key] = _make(*key)
        return made


KERNELS = _Kernels()


def _make(name: str, dtype: np.dtype[Any]) -> Kernel:
    wide = accumulation_dtype(name, dtype)
    widens = wide != dtype
    native = _NATIVE.get(wide.kind, {}).get(name)
    datatype = _native_type(wide)
    if native is None or datatype == MPI.DATATYPE_NULL:
        datatype, native = _own_type(wide), _own_op(name)
    return Kernel(datatype, native, plain=not widens and name not in ("AVG", "PREMUL_SUM"), widens=widens)


def _native_type(dtype: np.dtype[Any]) -> MPI.Datatype:
    if dtype.kind == "b":
        return MPI.UINT8_T
    key = dtype.char if dtype.char in "gG" else f"{dtype.kind}{dtype.itemsize}"
    return _TYPES.get(key, MPI.DATATYPE_NULL)


def _own_type(dtype: np.dtype[Any]) -> MPI.Datatype:
    """Return a datatype that tells our ops which dtype they are given."""
    datatype = MPI.BYTE.Create_contiguous(dtype.itemsize).Commit()
    _dtypes[datatype.handle] = dtype
    return datatype


def _own_op(name: str) -> MPI.Op:
    # mpi4py has room for few ops, so that there is one for each ufunc and not for each dtype.
    if name not in _ops:
        ufunc = _UFUNCS.get(name, np.add)

        def combine(left: Any, right: Any, datatype: MPI.Datatype) -> None:
            dtype = _dtypes[datatype.handle]
            out = np.frombuffer(right, dtype)
            # An exception in here would end the job, and a warning may be made one.
            with np.errstate(all="ignore"):
                ufunc(np.frombuffer(left, dtype), out, out=out)

        # Not declared commutative, so that MPI combines in the order of ranks: +0 and -0 then are no toss-up.
        _ops[name] = MPI.Op.Create(combine, commute=False)
    return _ops[name]
