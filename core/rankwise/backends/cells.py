"""What a backend declares of each operation and feature on each kind of device: how it does it, or why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from rankwise.backends.discovery import described
from rankwise.backends.vocabulary import EVERY_DTYPE, FEATURES, OPS, REDUCTIONS, nearest
from rankwise.basics.arrays import DTYPES
from rankwise.basics.interrupts import held, is_surely_a_handlers


class Support(str, Enum):
    """How a backend does something."""

    NATIVE = "native"
    STAGED = "staged"  # as a condition's `how`: by way of the host
    DERIVED = "derived"
    CONDITIONAL = "conditional"
    NO = "no"

    def __str__(self) -> str:
        return self.value


class Why(str, Enum):
    """What a "no" is due to, for programs; empty for a "yes"."""

    YES = ""
    UNAVAILABLE = "unavailable"  # the backend cannot run on this machine
    DEVICE = "device"  # it does not serve such devices
    UNDECLARED = "undeclared"  # it does not do this, and does not say why
    REFUSED = "refused"  # it does not do this, and says why
    CONDITION = "condition"  # what this depends on is not so on this machine
    REDUCE_OP = "reduce_op"  # it does this, but not with such a reduce op
    DTYPE = "dtype"  # it does this, but not for such arrays
    SIZE = "size"  # it makes no groups of so many ranks
    HOSTS = "hosts"  # it makes no groups on so many hosts

    def __str__(self) -> str:
        return self.value


class Availability(NamedTuple):
    """Whether a backend can run on this machine; if not, why, and the command that fixes it."""

    available: bool
    reason: str = ""
    remedy: str = ""

    def __bool__(self) -> bool:
        return self.available

    def _repr_html_(self) -> str:
        from rankwise.basics.rich_display import facts

        told = (("reason", self.reason), ("remedy", self.remedy))
        return facts("can run here", [("answer", "yes" if self else "no"), *(row for row in told if row[1])])


class Condition(NamedTuple):
    """What some dtype depends on.

    Attributes:
        reason: What that is.
        holds: Whether it is so on this machine.
    """

    reason: str
    holds: Callable[[], bool]

    def hindrance(self) -> str:
        """Return the reason if it does not hold; one that fails does not hold."""
        with held:
            try:
                return "" if self.holds() else self.reason
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # it is a plugin's, which may do whatever it likes
                if is_surely_a_handlers(error):
                    raise
                return f"{self.reason} (the condition cannot be asked: {described(error)})"


@dataclass(frozen=True)
class Cell:
    """How one operation (or feature) is supported on one device.

    Attributes:
        support: Native, derived from other operations, conditional, or not at all.
        reason: What a conditional cell depends on, or why there is none.
        dtypes: Names of the dtypes that it takes.
        reduce_ops: For a reduction, the dtypes that each reduce op takes.
        holds: For a conditional cell, whether its condition holds on this machine.
        how: For a conditional cell, how it is done where its condition holds.
        only_if: For dtypes that it does not take everywhere, what each depends on.
    """

    support: Support
    reason: str = ""
    dtypes: frozenset[str] = EVERY_DTYPE
    reduce_ops: Mapping[str, frozenset[str]] = field(default_factory=lambda: REDUCTIONS)
    holds: Callable[[], bool] = bool
    how: Support = Support.NATIVE
    only_if: Mapping[str, Condition] = field(default_factory=dict)

    @property
    def certain(self) -> bool:
        """Whether it works on any machine, so that no condition need be asked."""
        return self.support not in (Support.NO, Support.CONDITIONAL)

    @cached_property
    def certainly(self) -> Mapping[str, frozenset[str]]:
        """Which dtypes it takes on any machine, by reduce op, and under "" without one."""
        dtypes = self.dtypes.difference(self.only_if) if self.certain else frozenset[str]()
        return {"": dtypes, **{op: dtypes & taken for op, taken in self.reduce_ops.items()}}

    @property
    def usable(self) -> bool:
        """Whether it works on this machine; a condition that fails does not hold."""
        return not self.hindrance()

    def hindrance(self) -> str:
        """Return why it does not work on this machine; nothing if it does."""
        if self.support is not Support.CONDITIONAL:
            return "" if self.support is not Support.NO else self.reason or "it is not declared"
        return Condition(self.reason, self.holds).hindrance()

    def lacks(self, dtype: str | None) -> str:
        """Return what a dtype depends on that is not so on this machine; nothing if all is."""
        condition = self.only_if.get(dtype or "")
        return "" if condition is None else condition.hindrance()

    def takes(self, dtype: str | None, reduce_op: str | None) -> bool:
        """Tell whether it takes this dtype and reduce op on this machine; None stands for any."""
        return self.declares(dtype, reduce_op) and not self.lacks(dtype)

    def declares(self, dtype: str | None, reduce_op: str | None) -> bool:
        """Tell whether it takes them where everything that they depend on is so."""
        if reduce_op is None:
            return dtype is None or dtype in self.dtypes
        dtypes = self.reduce_ops.get(reduce_op, frozenset()) & self.dtypes
        return bool(dtypes) if dtype is None else dtype in dtypes

    def reduces(self, dtype: str | None, reduce_op: str | None) -> bool:
        """Tell the same of a reduction, which takes a dtype only if some reduce op does."""
        return any(self.takes(dtype, name) for name in ([reduce_op] if reduce_op else self.reduce_ops))

    def reduced(self, reduce_op: str | None) -> frozenset[str]:
        """Return the dtypes of which it is a reduction here, with this reduce op or any."""
        ops = self.reduce_ops.values() if reduce_op is None else (self.reduce_ops.get(reduce_op, frozenset()),)
        return self.taken().intersection(frozenset().union(*ops))

    def taken(self) -> frozenset[str]:
        """Return the dtypes that it takes on this machine."""
        return self.dtypes.difference(*([dtype] for dtype in self.only_if if self.lacks(dtype)))


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


ABSENT = Cell(Support.NO)


def derived_by(messages: Cell) -> Cell:
    """Return the cell of a collective that is made of messages, as far as these are supported."""
    if messages.support is Support.CONDITIONAL:
        return Cell(Support.CONDITIONAL, messages.reason, holds=messages.holds, how=Support.DERIVED)
    return ABSENT if messages.support is Support.NO else Cell(Support.DERIVED)


@dataclass(frozen=True)
class Device:
    """What a backend does with arrays on one kind of device.

    Attributes:
        ops: The operations.
        features: The features.
        here_only: Other ranks may lack it, as it is there only where something installed brings such devices.
    """

    ops: Mapping[str, Cell]
    features: Mapping[str, Cell] = field(default_factory=dict)
    here_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for kind, names, known in (("ops", self.ops, OPS), ("features", self.features, FEATURES)):
            for name in set(names).difference(known):
                raise ValueError(f"{kind}: there is no {name!r}; {nearest(str(name), known)}")


def why_refused(cell: Cell) -> Why:
    """Return what a cell that cannot be used here is due to."""
    if cell.support is Support.CONDITIONAL:
        return Why.CONDITION
    return Why.REFUSED if cell.reason else Why.UNDECLARED


def in_order(dtypes: frozenset[str]) -> list[str]:
    """Return names of dtypes in the order of the tables."""
    return [dtype for dtype in DTYPES if dtype in dtypes]
