"""What a backend can do, as data: operation x device x dtype x reduce op, whether a call could be made, and why not."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from rankwise.backends.discovery import described
from rankwise.backends.vocabulary import (
    COLLECTIVES,
    EVERY_DTYPE,
    FEATURES,
    OF_THE_CORE,
    OPS,
    POINT_TO_POINT,
    REDUCING,
    REDUCTIONS,
    device_kind,
    dtype_word,
    nearest,
    needs_of,
    operation,
    reduce_op_name,
)
from rankwise.basics.arguments import whole_number
from rankwise.basics.arrays import DTYPES
from rankwise.basics.devices import device_kind_named
from rankwise.basics.interrupts import held, is_surely_a_handlers
from rankwise.errors import PluginError

__all__ = [
    "ANY_HOSTS",
    "ANY_SIZE",
    "COLLECTIVES",
    "FEATURES",
    "OPS",
    "POINT_TO_POINT",
    "REDUCTIONS",
    "Answer",
    "Availability",
    "Capabilities",
    "Cell",
    "Condition",
    "Device",
    "Support",
    "Why",
    "conditional",
    "counted",
    "derived",
    "in_order",
    "native",
    "no",
    "reduce_op_name",
    "why_refused",
]


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


class Answer(NamedTuple):
    """What a table answers: true or false, and what a "no" is due to.

    Attributes:
        supported: Whether the call would be accepted on this machine.
        why: What a "no" is due to, for programs.
        reason: The same for people.
        remedy: What would help, where that is known.
        how: How it would be done: natively, staged, or derived from other operations; None after a "no", and where the
            core does it without the backend.
    """

    supported: bool
    why: Why = Why.YES
    reason: str = ""
    remedy: str = ""
    how: Support | None = None

    def __bool__(self) -> bool:
        return self.supported


_YES = Answer(True)


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

    @property
    def usable(self) -> bool:
        """Whether it works on this machine; a condition that fails does not hold."""
        if self.support is not Support.CONDITIONAL:
            return self.support is not Support.NO
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

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Cell:
        """Make a cell of what a table's `to_dict` has of it, perhaps elsewhere; a condition stays as it was."""
        from rankwise.backends.plain_tables import cell_of  # which few programs need

        return cell_of(plain)


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


def _here() -> Availability:
    """Say yes, as long as no registry knows better."""
    return Availability(True)


#: The sizes of groups of a backend that makes them of any size, and the hosts of one that makes them anywhere.
ANY_SIZE = ANY_HOSTS = range(1, 1 << 31)


@dataclass(frozen=True, repr=False)
class Capabilities:
    """What one backend can do, per kind of device.

    Attributes:
        backend: The backend's name.
        devices: What it does on each kind of device.
        sizes: The sizes of groups that it can make, such as `range(2, 3)` for pairs alone.
        hosts: On how many hosts the ranks of a group may be, such as `range(1, 2)` if they share memory.
        here: Whether the backend can run on this machine; the registry sets it.
    """

    backend: str
    devices: Mapping[str, Device]
    sizes: range = ANY_SIZE
    hosts: range = ANY_HOSTS
    here: Callable[[], Availability] = field(default=_here, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<Capabilities of {self.backend!r} for {', '.join(self.devices)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as plain data: conditions stay as they are on this machine now."""
        return Capabilities.from_dict, (self.backend, self.to_dict(), self.here())

    def cell(self, op: str, device: str) -> Cell:
        """Return the cell of an operation or feature as it is declared; one that is not declared says no."""
        declared = self.devices.get(device)
        if declared is None:
            return _ABSENT
        cell = declared.ops.get(op) or declared.features.get(op) or _ABSENT
        if op in OF_THE_CORE and cell.support is Support.NO:
            return Cell(Support.DERIVED, cell.reason)
        return cell

    def supports(
        self,
        op: str,
        device: Any,
        dtype: Any = None,
        reduce_op: Any = None,
        *,
        features: Iterable[str] = (),
        size: int | None = None,
        hosts: int | None = None,
    ) -> bool:
        """Tell whether a call would be accepted on this machine.

        Args:
            op: A public call ("all_gather_object"), operation ("all_reduce") or feature ("any_source").
            device: A kind of device ("cpu", "cuda"), with or without an index ("cuda:0"), a library's device, or an
                array.
            dtype: Anything NumPy takes for a dtype, or one of the table's names; None asks about any.
            reduce_op: A `ReduceOp` or its name; None asks about any.
            features: What the call needs besides, such as "async" for `async_op=True`.
            size: How many ranks the group has; None asks about a group that is there.
            hosts: On how many hosts they are, likewise.

        Raises:
            ValueError: There is no such call, operation, feature, device, dtype or reduce op.
            TypeError: `device` or `dtype` is something else.
        """
        return self.ask(op, device, dtype, reduce_op, features=features, size=size, hosts=hosts).supported

    def ask(
        self,
        op: str,
        device: Any,
        dtype: Any = None,
        reduce_op: Any = None,
        *,
        features: Iterable[str] = (),
        size: int | None = None,
        hosts: int | None = None,
    ) -> Answer:
        """Answer as `supports` does, with how it would be done, or the reason of a "no"."""
        kind, word, reduction = device_kind(device, self.devices), dtype_word(dtype), reduce_op_name(reduce_op)
        needs, besides = needs_of(op, reduction), [operation(name) for name in features]
        word = needs.dtype or word
        if not (here := self.here()):
            return Answer(False, Why.UNAVAILABLE, here.reason, here.remedy)
        parts = [
            self._declared_answer(name, kind, word, reduction if name in REDUCING else None) for name in needs.names
        ]
        also = [self._declared_answer(name, kind, None, None) for name in besides]
        answers = [self.for_group(size, hosts, [kind]), *parts, *also]
        for answer in answers:
            if not answer:
                return answer
        ways = [_way(name, kind, part.how) for name, part in zip(needs.names, parts, strict=True)]
        return Answer(True, how=_slowest(ways))

    def for_group(self, size: int | None, hosts: int | None, devices: Iterable[str] = ()) -> Answer:
        """Answer whether it makes groups of this size on so many hosts, as far as given, that serve these devices."""
        if missing := [device for device in devices if device not in self.devices]:
            return self._serves_not(missing[0])
        if size is not None and whole_number(size, "size", 1) not in self.sizes:
            return Answer(False, Why.SIZE, f"its groups are of {counted(self.sizes, 'rank')}, not of {size}")
        if hosts is not None and whole_number(hosts, "hosts", 1) not in self.hosts:
            return Answer(False, Why.HOSTS, f"its groups are on {counted(self.hosts, 'host')}, not on {hosts}")
        return _YES

    def digest(self) -> str:
        """Return what is the same for tables that declare the same, whatever holds on this machine."""
        table = [
            (
                *(device, name, cell.support.value, sorted(cell.dtypes), sorted(cell.only_if)),
                _sorted(cell.reduce_ops) if name in REDUCING else 0,
            )
            for device, declared in sorted(self.devices.items())
            if not declared.here_only
            for name, cell in sorted({**declared.ops, **declared.features}.items())
        ]
        return f"{zlib.crc32(repr((self.sizes, self.hosts, table)).encode()):08x}"

    def usable_devices(self) -> list[str]:
        """Return the kinds of devices whose arrays some operation takes on this machine."""
        from rankwise.backends.plain_tables import Memo

        usable = Memo()
        return [
            device
            for device, declared in self.devices.items()
            if self.here() and any(usable(cell) == "" for op, cell in declared.ops.items() if op != "barrier")
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the whole table as plain data, with what holds on this machine."""
        from rankwise.backends.plain_tables import plain_table

        return plain_table(self)

    @classmethod
    def from_dict(cls, backend: str, plain: Mapping[str, Any], here: Availability | None = None) -> Capabilities:
        """Make a table of what `to_dict` has returned, perhaps in another process; its conditions stay as they were."""
        from rankwise.backends.plain_tables import table_of

        return table_of(backend, plain, here)

    def _answer(self, op: str, device: str, dtype: str | None, reduce_op: str | None) -> Answer:
        here = self.here()
        if not here:
            return Answer(False, Why.UNAVAILABLE, here.reason, here.remedy)
        return self._declared_answer(op, device, dtype, reduce_op)

    def _serves_not(self, device: str) -> Answer:
        return Answer(False, Why.DEVICE, f"it serves {', '.join(self.devices)}, not {device}")

    def _declared_answer(self, op: str, device: str, dtype: str | None, reduce_op: str | None) -> Answer:
        """Answer without regard to whether the backend can run here."""
        if device not in self.devices:
            return self._serves_not(device)
        cell = self.cell(op, device)
        if hindrance := cell.hindrance():
            return Answer(False, why_refused(cell), hindrance)
        if op not in REDUCING:
            if op == "barrier" or cell.takes(dtype, None):
                return _yes(cell)
            return _no_dtype(op, dtype, cell, cell.taken())
        if cell.reduces(dtype, reduce_op):
            return _yes(cell)
        if not cell.reduces(None, reduce_op):
            return Answer(False, Why.REDUCE_OP, _limit(op, cell, [r for r in cell.reduce_ops if cell.takes(None, r)]))
        named = op if reduce_op is None else f"{op}({reduce_op})"
        return _no_dtype(named, dtype, cell, cell.reduced(reduce_op))


def _no_dtype(what: str, dtype: str | None, cell: Cell, dtypes: frozenset[str]) -> Answer:
    if lacking := cell.lacks(dtype):
        return Answer(False, Why.CONDITION, f"{what} of {dtype}: {lacking}")
    return Answer(False, Why.DTYPE, _limit(what, cell, in_order(dtypes)))


def _yes(cell: Cell) -> Answer:
    return Answer(True, how=cell.how if cell.support is Support.CONDITIONAL else cell.support)


def _way(op: str, device: str, how: Support | None) -> Support | None:
    """Return how an operation is done there: what the core derives goes by way of the host unless a device computes."""
    if how is not Support.DERIVED or op not in COLLECTIVES or op == "barrier":
        return how
    with suppress(PluginError):
        kind = device_kind_named(device)
        return Support.STAGED if kind is not None and not kind.computes else how
    return how


def _slowest(ways: Iterable[Support | None]) -> Support | None:
    """Return how a call is done whose parts are done in these ways."""
    return max((way for way in ways if way is not None), key=list(Support).index, default=None)


def counted(numbers: range, what: str) -> str:
    """Name the sizes of groups: "2 ranks", "1 to 4 ranks", "2, 4, 8 ranks", or their hosts, likewise."""
    if len(numbers) > 1 and numbers.step == 1:
        no_end = numbers.stop >= ANY_SIZE.stop
        return f"{numbers[0]} {what}s or more" if no_end else f"{numbers[0]} to {numbers[-1]} {what}s"
    listed = ", ".join(map(str, numbers[:8])) + (" ..." if len(numbers) > 8 else "")
    return f"{listed} {what}{'s' * (listed != '1')}"


def _sorted(reduce_ops: Mapping[str, Iterable[str]]) -> list[tuple[str, list[str]]]:
    return [(name, sorted(dtypes)) for name, dtypes in sorted(reduce_ops.items())]


def why_refused(cell: Cell) -> Why:
    """Return what a cell that cannot be used here is due to."""
    if cell.support is Support.CONDITIONAL:
        return Why.CONDITION
    return Why.REFUSED if cell.reason else Why.UNDECLARED


def in_order(dtypes: frozenset[str]) -> list[str]:
    """Return names of dtypes in the order of the tables."""
    return [dtype for dtype in DTYPES if dtype in dtypes]


def _limit(what: str, cell: Cell, taken: Iterable[str]) -> str:
    text = f"{what} takes {', '.join(taken) or 'nothing'}"
    return f"{text} ({cell.reason})" if cell.reason else text
