"""Which MPI datatype and op reduce arrays of a dtype exactly as NumPy would.

MPI's own ops serve where they give NumPy's result, which each is asked for before it is used (`selftest`). The others
go through an op of ours over NumPy's ufuncs: small integers where a library saturates them, minima and maxima of
floats (NaN must win, whichever side it comes from) and of complex numbers and times, products of complex numbers, sums
of time spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from rankwise.backends import REDUCE_OP_TABLE as OPS
from rankwise.backends import ReduceOp, accumulation_dtype
from rankwise_mpi.library.selftest import reduces_as


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
    "b1": MPI.UINT8_T,
    "f4": MPI.FLOAT,
    "f8": MPI.DOUBLE,
    "g": MPI.LONG_DOUBLE,
    "c8": MPI.C_FLOAT_COMPLEX,
    "c16": MPI.C_DOUBLE_COMPLEX,
    "G": MPI.C_LONG_DOUBLE_COMPLEX,
}
#: Ops that are not here are ours, and AVG and PREMUL_SUM are sums to MPI.
_OPS: dict[str, MPI.Op] = {
    "SUM": MPI.SUM,
    "PRODUCT": MPI.PROD,
    "MIN": MPI.MIN,
    "MAX": MPI.MAX,
    "BAND": MPI.BAND,
    "BOR": MPI.BOR,
    "BXOR": MPI.BXOR,
}
#: A bool is a byte that is 0 or 1, and NumPy's sum of bools is "or".
_BOOL_OPS = {**_OPS, "SUM": MPI.BOR, "PRODUCT": MPI.BAND}
#: What MPI has, by kind of dtype. Minima and maxima of floats are not among it: what comes of NaN there depends on the
#: order of the operands; nor are complex products, which a fused multiply-add makes depend on it too.
_NATIVE: dict[str, dict[str, MPI.Op]] = {
    "i": _OPS,
    "u": _OPS,
    "b": _BOOL_OPS,
    "f": {"SUM": MPI.SUM, "PRODUCT": MPI.PROD},
    "c": {"SUM": MPI.SUM},
}


class Kernels(dict[tuple[str, np.dtype[Any]], Kernel]):
    """The kernels by name of the op and dtype, made when they are first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._trusted: dict[tuple[str, str], bool] = {}
        self._own = _OwnOps()

    def __missing__(self, key: tuple[str, np.dtype[Any]]) -> Kernel:
        made = self[key] = self._make(*key)
        return made

    def trusted(self) -> bytearray:
        """Return what the library does right here, one byte for each op and dtype."""
        return bytearray(self._trusts(*one) for one in _tested())

    def agree(self, everyone: bytearray) -> None:
        """Leave to the library what it does right on all ranks, where their processors may differ.

        Args:
            everyone: What `trusted` has returned on each rank, one after the other.
        """
        tested = _tested()
        for column, (name, dtype) in enumerate(tested):
            self._trusted[name, dtype.str] = all(everyone[column :: len(tested)])
        self.clear()

    def _make(self, name: str, dtype: np.dtype[Any]) -> Kernel:
        wide, base = accumulation_dtype(name, dtype), ReduceOp(name).base.name
        widens = wide != dtype
        plain = not widens and name == base
        if self._trusts(base, wide):
            return Kernel(_native_type(wide), _NATIVE[wide.kind][base], plain, widens)
        return Kernel(self._own.datatype(wide), self._own.op(base, wide), plain, widens)

    def _trusts(self, name: str, dtype: np.dtype[Any]) -> bool:
        """Tell whether the library reduces this as NumPy does."""
        op, datatype = _NATIVE.get(dtype.kind, {}).get(name), _native_type(dtype)
        if op is None or datatype == MPI.DATATYPE_NULL:
            return False
        key = name, dtype.str
        if key not in self._trusted:
            self._trusted[key] = reduces_as(OPS[name].ufunc, op, datatype, dtype)
        return self._trusted[key]


def _tested() -> list[tuple[str, np.dtype[Any]]]:
    """Return the ops and dtypes that the library may know."""
    dtypes = [np.dtype(letters) for letters in _TYPES]
    return [(name, dtype) for dtype in dtypes for name in _NATIVE[dtype.kind]]


class _OwnOps:
    """Ops over NumPy's ufuncs, and datatypes that tell them which dtype they are given."""

    def __init__(self) -> None:
        self._dtypes: dict[int, np.dtype[Any]] = {}
        self._ops: dict[tuple[str, bool], MPI.Op] = {}

    def datatype(self, dtype: np.dtype[Any]) -> MPI.Datatype:
        """Return a datatype of ours for elements of `dtype`."""
        datatype = MPI.BYTE.Create_contiguous(dtype.itemsize).Commit()
        self._dtypes[datatype.handle] = dtype
        return datatype

    def op(self, name: str, dtype: np.dtype[Any]) -> MPI.Op:
        """Return the op of ours that reduces elements of `dtype`."""
        # Where the order matters it is not declared commutative, so that MPI combines in the order of ranks: +0 and
        # -0 then are no toss-up. mpi4py has room for few ops, so that there is not one for each dtype.
        key = name, dtype.kind in "iub"
        if key not in self._ops:
            self._ops[key] = self._new(OPS[name].ufunc, commute=key[1])
        return self._ops[key]

    def _new(self, ufunc: np.ufunc, commute: bool) -> MPI.Op:
        def combine(left: Any, right: Any, datatype: MPI.Datatype) -> None:
            dtype = self._dtypes[datatype.handle]
            out = np.frombuffer(right, dtype)
            # An exception in here would end the job, and a warning may be made one.
            with np.errstate(all="ignore"):
                ufunc(np.frombuffer(left, dtype), out, out=out)

        return MPI.Op.Create(combine, commute=commute)


def _native_type(dtype: np.dtype[Any]) -> MPI.Datatype:
    key = dtype.char if dtype.char in "gG" else f"{dtype.kind}{dtype.itemsize}"
    return _TYPES.get(key, MPI.DATATYPE_NULL)


#: The kernels of this process.
KERNELS = Kernels()
