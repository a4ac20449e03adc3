"""`ReduceOp`: what a reduction does to two elements; and `REDUCE_OP_TABLE`, the one table of all there are.

The capability tables, the conformance kit's oracle, the plugins' own tables and torch's operators derive from that
table, so that a new op is a line of it. The compiled parts and the libraries know ops by name, and leave those that
they do not know to NumPy, or refuse them.

The module doubles as torch's deprecated `reduce_op`: `reduce_op.SUM` is `ReduceOp.SUM`, with a warning.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextvars import Context
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rankwise.basics.arrays import DTYPES, dtype_name


class Op(NamedTuple):
    """One kind of reduction.

    Its result has the dtype of the contributions, whatever the ufunc's own would be.

    Attributes:
        ufunc: What combines two contributions.
        dtypes: Names of the dtypes on which it is defined.
        widens: Floats narrower than 32 bits accumulate in float32.
        scales: The op is the sum of what is scaled: contributions by a factor before it, or their sum after it.
    """

    ufunc: np.ufunc
    dtypes: frozenset[str]
    widens: bool = False
    scales: bool = False


_BITS = frozenset(name for name in DTYPES if "int" in name) | {"bool"}
_SCALABLE = frozenset(name for name in DTYPES if "float" in name or "complex" in name or name.endswith("longdouble"))
_NUMBERS = _BITS | _SCALABLE
_ORDERED = _NUMBERS | {"datetime64", "timedelta64"}

#: All reduce ops by name, in the order of the tables. A test compares their dtypes with what NumPy defines.
REDUCE_OP_TABLE: dict[str, Op] = {
    "SUM": Op(np.add, _NUMBERS | {"timedelta64"}, widens=True),
    "AVG": Op(np.add, _SCALABLE, widens=True, scales=True),
    "PRODUCT": Op(np.multiply, _NUMBERS, widens=True),
    "MIN": Op(np.minimum, _ORDERED),
    "MAX": Op(np.maximum, _ORDERED),
    "BAND": Op(np.bitwise_and, _BITS),
    "BOR": Op(np.bitwise_or, _BITS),
    "BXOR": Op(np.bitwise_xor, _BITS),
    "PREMUL_SUM": Op(np.add, _SCALABLE, widens=True, scales=True),
}
#: The names of all reduce ops.
REDUCE_OPS = REDUCE_OP_TABLE.keys()


class _Quiet(threading.local):
    """Calls functions of NumPy with their warnings off. `np.errstate` costs more than the sum of a small array."""

    run: Callable[..., Any]

    def __init__(self) -> None:
        if int(np.__version__.partition(".")[0]) < 2:  # there the setting is the thread's, not the context's
            self.run = np.errstate(all="ignore")(lambda function, *args, **out: function(*args, **out))
        else:
            context = Context()
            context.run(np.seterr, all="ignore")
            self.run = context.run


_quiet = _Quiet()


class ReduceOp:
    """An element-wise reduction, such as `ReduceOp.SUM`.

    `ReduceOp.PREMUL_SUM(factor)` multiplies each rank's contribution by that rank's `factor` before the sum.
    Sums and products of floats narrower than 32 bits accumulate in float32.

    Args:
        name: The name of an op.
        factor: The factor of a PREMUL_SUM.

    Raises:
        ValueError: There is no such op, or it has no factor.

    Examples:
        >>> array = np.array([2.0, 3.0])
        >>> dist.all_reduce(array, dist.ReduceOp.PRODUCT)
        >>> array
        array([4., 9.])
    """

    __slots__ = ("factor", "name")

    name: str
    factor: Any
    SUM: ClassVar[ReduceOp]
    AVG: ClassVar[ReduceOp]
    PRODUCT: ClassVar[ReduceOp]
    MIN: ClassVar[ReduceOp]
    MAX: ClassVar[ReduceOp]
    BAND: ClassVar[ReduceOp]
    BOR: ClassVar[ReduceOp]
    BXOR: ClassVar[ReduceOp]

    def __new__(cls, name: str, factor: Any = None) -> ReduceOp:
        if name not in REDUCE_OP_TABLE:
            raise ValueError(f"no such reduce op: {name!r} (there are {', '.join(REDUCE_OP_TABLE)})")
        if factor is not None and name != "PREMUL_SUM":
            raise ValueError(f"only PREMUL_SUM has a factor, not {name}")
        # There is one object of each: the compiled parts know it by its identity.
        only: ReduceOp | None = cls.__dict__.get(name) if name != "PREMUL_SUM" else None
        if only is not None:
            return only
        made = super().__new__(cls)
        made.name, made.factor = name, factor
        return made

    @staticmethod
    def PREMUL_SUM(factor: Any) -> ReduceOp:
        """Return the op that sums contributions after each was multiplied by its rank's `factor`."""
        if factor is None:
            raise TypeError("PREMUL_SUM needs a factor")
        return ReduceOp("PREMUL_SUM", factor)

    def __repr__(self) -> str:
        return f"ReduceOp.{self.name}" + ("" if self.factor is None else f"({self.factor!r})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReduceOp) and (self.name, self.factor) == (other.name, other.factor)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return ReduceOp, (self.name, self.factor)

    def defined_for(self, dtype: np.dtype[Any]) -> bool:
        """Tell whether this op is defined on `dtype`."""
        return dtype_name(dtype) in REDUCE_OP_TABLE[self.name].dtypes

    @property
    def base(self) -> ReduceOp:
        """The op that combines contributions which have been scaled, or are to be: SUM for AVG and PREMUL_SUM."""
        return ReduceOp.SUM if REDUCE_OP_TABLE[self.name].scales else self

    def is_plain_on(self, dtype: np.dtype[Any]) -> bool:
        """Tell whether arrays of `dtype` are reduced as they are: neither in a wider dtype nor scaled before."""
        return self.factor is None and accumulation_dtype(self.name, dtype) == dtype

    def accumulator(self, array: Any) -> Any:
        """Return a new flat copy of `array` to reduce into, in the dtype that the reduction is done in."""
        copy = array.reshape(-1).astype(accumulation_dtype(self.name, array.dtype), copy=True)
        if self.factor is not None:
            _quiet.run(np.multiply, copy, self.scale(array.dtype), out=copy)
        return copy

    def scale(self, dtype: np.dtype[Any]) -> Any:
        """Return the factor as a number of the dtype in which arrays of `dtype` are reduced.

        Raises:
            TypeError: It is no number, or a complex one for an array of reals.
            OverflowError: It is an integer that no float can hold.
        """
        return _quiet.run(accumulation_dtype(self.name, dtype).type, self.factor)

    def combine(self, accumulator: Any, incoming: Any, left: bool = False) -> None:
        """Reduce `incoming` into `accumulator`, in place; it is the right operand unless `left` is true."""
        if left:
            self.merge(incoming, accumulator, accumulator)
        else:
            self.merge(accumulator, incoming, accumulator)

    def merge(self, first: Any, second: Any, out: Any) -> None:
        """Write what `first` and `second` reduce to into `out`, which may be one of them."""
        # Only some ranks do the arithmetic of a block; a warning must not fail those and not the others.
        _quiet.run(REDUCE_OP_TABLE[self.name].ufunc, first, second, out=out)

    def average(self, total: Any, size: int) -> None:
        """Divide the sum of `size` contributions by their number, in place, if this op is AVG."""
        if self.name == "AVG":
            _quiet.run(np.divide, total, size, total)

    def finish(self, accumulator: Any, out: Any, size: int) -> None:
        """Write the reduced `accumulator` of `size` contributions into `out`, in its shape and dtype."""
        self.average(accumulator, size)
        with np.errstate(all="ignore"):
            out[...] = accumulator.reshape(out.shape)


for _name in REDUCE_OP_TABLE:
    if _name != "PREMUL_SUM":
        setattr(ReduceOp, _name, ReduceOp(_name))


@cache
def accumulation_dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the native dtype in which the op called `name` reduces arrays of `dtype`."""
    if REDUCE_OP_TABLE[name].widens and _is_narrow_float(dtype):
        return np.dtype(np.float32)
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return native


def _is_narrow_float(dtype: np.dtype[Any]) -> bool:
    # The types of ml_dtypes are not NumPy floats (bfloat16 is of kind "V"), but they are named like floats.
    return dtype.itemsize < 4 and ("float" in dtype.name or dtype.name == "half")


def __getattr__(name: str) -> ReduceOp:
    if name in REDUCE_OP_TABLE and name != "PREMUL_SUM":
        warnings.warn(f"reduce_op.{name} is deprecated; use ReduceOp.{name}", FutureWarning, stacklevel=2)
        found: ReduceOp = getattr(ReduceOp, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
