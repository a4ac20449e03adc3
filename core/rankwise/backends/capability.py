"""What a backend can do, as data: operation x device x dtype x reduce op, and the one place that refuses a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np

from rankwise.basics.arrays import DTYPES, dtype_name
from rankwise.basics.reduce_op import ReduceOp
from rankwise.errors import UnsupportedOperationError

__all__ = [
    "COLLECTIVES",
    "FEATURES",
    "OPS",
    "POINT_TO_POINT",
    "REDUCTIONS",
    "Capabilities",
    "Cell",
    "Device",
    "Support",
    "conditional",
    "derived",
    "native",
    "no",
    "reduce_op_name",
    "require",
    "require_feature",
]

POINT_TO_POINT = ("send", "recv")
COLLECTIVES = (
    *("broadcast", "all_reduce", "reduce", "all_gather", "gather"),
    *("scatter", "reduce_scatter", "all_to_all", "barrier"),
)
OPS = POINT_TO_POINT + COLLECTIVES
_REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})

FEATURES: Mapping[str, str] = MappingProxyType(
    {
        "async": "`async_op=True` makes progress while the caller computes",
        "tags": "messages between two ranks are told apart by tag",
        "any_source": "`recv(src=None)` takes from whoever sends first",
        "short_messages": "a message may be shorter than the buffer it is received into; a longer one is an error",
        "message_dtypes": "a message received into another dtype is an error that names both; uint8 takes any",
        "uneven": "parts may differ in size",
        "sparse": "`all_reduce` sums sparse arrays of scipy",
        "timeout": "each call may have its own time-out, and ends at it",
        "abort": "a blocked call is ended from another thread",
        "mismatch": "ranks that disagree about a collective all get the same error",
        "split": "subgroups are made from the parent's connections",
        "shrink": "survivors of a dead rank can form a smaller group",
    }
)

_INTEGERS = frozenset(name for name in DTYPES if "int" in name)
_FLOATS = frozenset(name for name in DTYPES if "float" in name or name == "longdouble")
_COMPLEX = frozenset({"complex64", "complex128", "clongdouble"})
_BITS = _INTEGERS | {"bool"}
_NUMBERS = _BITS | _FLOATS | _COMPLEX
_TIMES = frozenset({"datetime64", "timedelta64"})

EVERY_DTYPE = frozenset(DTYPES)

#: Where NumPy defines each reduce op. A test compares it with NumPy itself.
REDUCTIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "SUM": _NUMBERS | {"timedelta64"},
        "AVG": _FLOATS | _COMPLEX,
        "PRODUCT": _NUMBERS,
        "MIN": _NUMBERS | _TIMES,
        "MAX": _NUMBERS | _TIMES,
        "BAND": _BITS,
        "BOR": _BITS,
        "BXOR": _BITS,
        "PREMUL_SUM": _FLOATS | _COMPLEX,
    }
)


class Support(str, Enum):
    """How a backend does something."""

    NATIVE = "native"
    DERIVED = "derived"
    CONDITIONAL = "conditional"
    NO = "no"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Cell:
    """How one operation (or feature) is supported on one device.

    Attributes:
        support: Native, derived from other operations, conditional, or not at all.
        reason: What a conditional cell depends on, or why there is none.
        dtypes: Names of the dtypes that it takes.
        reduce_ops: For a reduction, the dtypes that each reduce op takes.
        holds: For a conditional cell, whether its condition holds on this machine.
    """

    support: Support
    reason: str = ""
    dtypes: frozenset[str] = EVERY_DTYPE
    reduce_ops: Mapping[str, frozenset[str]] = field(default_factory=lambda: REDUCTIONS)
    holds: Callable[[], bool] = bool

    @property
    def usable(self) -> bool:
        """Whether it works on this machine."""
        return self.holds() if self.support is Support.CONDITIONAL else self.support is not Support.NO

    def takes(self, dtype: str | None, reduce_op: str | None) -> bool:
        """Tell whether it takes this dtype and reduce op; None stands for any."""
        if reduce_op is None:
            return dtype is None or dtype in self.dtypes
        dtypes = self.reduce_ops.get(reduce_op, frozenset()) & self.dtypes
        return bool(dtypes) if dtype is None else dtype in dtypes


def native(*names: str, **limits: Any) -> dict[str, Cell]:
    """Declare that the backend's own library does these; `limits` are fields of `Cell`."""
    return {name: Cell(Support.NATIVE, **limits) for name in names}


def derived(*names: str, **limits: Any) -> dict[str, Cell]:
    """Declare that these are made of the backend's point-to-point calls."""
    return {name: Cell(Support.DERIVED, **limits) for name in names}


def conditional(*names: str, reason: str, holds: Callable[[], bool], **limits: Any) -> dict[str, Cell]:
    """Declare that these work where `holds()` is true; `reason` says what that depends on."""
    return {name: Cell(Support.CONDITIONAL, reason, holds=holds, **limits) for name in names}


def no(*names: str, reason: str = "") -> dict[str, Cell]:
    """Declare that these are not there, and perhaps why; what is not declared is not there either."""
    return {name: Cell(Support.NO, reason) for name in names}


_ABSENT = Cell(Support.NO)


@dataclass(frozen=True)
class Device:
    """What a backend does with arrays on one kind of device."""

    ops: Mapping[str, Cell]
    features: Mapping[str, Cell] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.ops) - set(OPS)) + sorted(set(self.features) - set(FEATURES))
        if unknown:
            raise ValueError(f"capabilities that do not exist: {', '.join(unknown)}")


@dataclass(frozen=True)
class Capabilities:
    """What one backend can do, per kind of device."""

    backend: str
    devices: Mapping[str, Device]

    def cell(self, op: str, device: str) -> Cell:
        """Return the cell of an operation or feature; one that is not declared says no."""
        declared = self.devices.get(device)
        if declared is None:
            return _ABSENT
        return declared.ops.get(op) or declared.features.get(op) or _ABSENT

    def supports(self, op: str, device: str, dtype: Any = None, reduce_op: Any = None) -> bool:
        """Tell whether a call would be accepted on this machine.

        Args:
            op: An operation ("all_reduce") or feature ("any_source").
            device: A kind of device ("cpu", "cuda").
            dtype: Anything NumPy takes for a dtype, or one of the table's names; None asks about any.
            reduce_op: A `ReduceOp` or its name; None asks about any.
        """
        cell = self.cell(_known(op), device)
        return cell.usable and cell.takes(_dtype_name(dtype), reduce_op_name(reduce_op))

    def usable_devices(self) -> list[str]:
        """Return the kinds of devices whose arrays some operation takes on this machine."""
        return [device for device in self.devices if any(self.supports(op, device) for op in OPS if op != "barrier")]

    def to_dict(self) -> dict[str, Any]:
        """Return the whole table as plain data."""
        return {
            device: {
                "ops": {op: _plain(self.cell(op, device), op in _REDUCING, op != "barrier") for op in OPS},
                "features": {name: _plain(self.cell(name, device), False, False) for name in FEATURES},
            }
            for device in self.devices
        }


def require(
    table: Capabilities,
    op: str,
    device: str,
    dtype: np.dtype[Any] | None,
    reduce_op: ReduceOp | None,
    installed: Callable[[], Iterable[Capabilities]],
) -> None:
    """Raise unless `table` supports the call.

    Args:
        table: The backend that the group uses for this device.
        op: The operation.
        device: Where the array lies.
        dtype: Its dtype, or None for an operation without an array.
        reduce_op: The reduce op, or None for an operation without one.
        installed: Gives the tables of all installed backends, to name those that could.

    Raises:
        TypeError: The dtype holds Python objects.
        UnsupportedOperationError: The table says no.
    """
    if dtype is not None and dtype.hasobject:
        raise TypeError(f"{op}: arrays of Python objects do not travel; use the object collectives")
    if dtype is not None and dtype.itemsize == 0:
        raise TypeError(f"{op}: arrays of dtype {dtype}, whose items have no bytes, do not travel")
    name, reduction = _dtype_name(dtype), reduce_op_name(reduce_op)
    cell = table.cell(op, device)
    if cell.usable and cell.takes(name, reduction):
        return
    what = op if reduction is None else f"{op}({reduction})"
    if name is not None and cell.usable:
        what += f" of {name}"
    others = sorted(t.backend for t in installed() if t.supports(op, device, name, reduction))
    hint = "; averages of integers are no integers: reduce with SUM, and divide" if _rounds(reduction, name) else ""
    raise UnsupportedOperationError(_refusal(table.backend, what, device, cell, others) + hint)


def require_feature(table: Capabilities, feature: str, device: str, op: str, installed: Any) -> None:
    """Raise `UnsupportedOperationError` unless `table` has the feature that this call of `op` needs."""
    cell = table.cell(feature, device)
    if not cell.usable:
        others = sorted(t.backend for t in installed() if t.supports(feature, device))
        what = f"{op} with the feature {feature!r} ({FEATURES[feature]})"
        raise UnsupportedOperationError(_refusal(table.backend, what, device, cell, others))


def reduce_op_name(reduce_op: Any) -> str | None:
    """Return the name of a reduce op given as `ReduceOp` or as a name."""
    if reduce_op is None:
        return None
    name = reduce_op.name if isinstance(reduce_op, ReduceOp) else str(reduce_op).upper()
    if name not in REDUCTIONS:
        raise ValueError(f"no such reduce op: {reduce_op!r} (there are {', '.join(REDUCTIONS)})")
    return name


def _rounds(reduction: str | None, dtype: str | None) -> bool:
    return reduction == "AVG" and dtype in _BITS


def _refusal(backend: str, what: str, device: str, cell: Cell, others: list[str]) -> str:
    because = f": {cell.reason}" if cell.reason else ""
    remedy = f"installed backends that could: {', '.join(others)}" if others else "no installed backend could"
    return f"backend {backend!r} does not do {what} on {device}{because}; {remedy}"


def _known(op: str) -> str:
    if op not in OPS and op not in FEATURES:
        raise ValueError(f"no such operation or feature: {op!r} (there are {', '.join((*OPS, *FEATURES))})")
    return op


def _dtype_name(dtype: Any) -> str | None:
    if dtype is None or (isinstance(dtype, str) and dtype in EVERY_DTYPE):
        return dtype
    try:
        return dtype_name(np.dtype(dtype))
    except TypeError as error:
        raise TypeError(
            f"{dtype!r} is no dtype; pass what NumPy takes for one, or one of {', '.join(DTYPES)}"
        ) from error


def _plain(cell: Cell, reducing: bool, typed: bool) -> dict[str, Any]:
    plain: dict[str, Any] = {"support": cell.support.value}
    if cell.reason:
        plain["reason"] = cell.reason
    if cell.support is Support.CONDITIONAL:
        plain["usable"] = cell.usable
    if reducing and cell.support is not Support.NO:
        plain["reduce_ops"] = {
            name: [d for d in DTYPES if cell.takes(d, name)] for name in cell.reduce_ops if cell.takes(None, name)
        }
    elif typed and cell.support is not Support.NO:
        plain["dtypes"] = [d for d in DTYPES if d in cell.dtypes]
    return plain
