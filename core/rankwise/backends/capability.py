"""What one backend can do, asked: whether a call of an operation could be made, how, and why not; and refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rankwise.backends.cells import ABSENT, Availability, Cell, Device, Support, Why, derived_by, in_order, why_refused
from rankwise.backends.vocabulary import (
    COLLECTIVES,
    FEATURES,
    OF_THE_CORE,
    OWN_COLLECTIVES,
    REDUCTIONS,
    device_kind,
    dtype_word,
    needs_of,
    operation,
    reduce_op_name,
    reducing,
)
from rankwise.basics.arguments import whole_number
from rankwise.basics.arrays import dtype_name
from rankwise.basics.devices import device_kind_named
from rankwise.basics.reduce_op import ReduceOp
from rankwise.errors import PluginError, UnsupportedOperationError


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
            return ABSENT
        cell = declared.ops.get(op) or declared.features.get(op) or ABSENT
        if op in OF_THE_CORE and cell.support is Support.NO:
            return Cell(Support.DERIVED, cell.reason)
        if cell is ABSENT and op in COLLECTIVES and op not in OWN_COLLECTIVES:
            # A program has added it, perhaps after the backend was loaded, which so has no reason to refuse.
            return derived_by(declared.ops.get("send", ABSENT))
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
            self._declared_answer(name, kind, word, reduction if name in reducing() else None) for name in needs.names
        ]
        also = [self._declared_answer(name, kind, None, None) for name in besides]
        answers = [self.for_group(size, hosts, [kind]), *parts, *also]
        for answer in answers:
            if not answer:
                return answer
        ways = [_way(name, kind, part.how) for name, part in zip(needs.names, parts, strict=True)]
        slowest = max(filter(None, ways), key=list(Support).index, default=None)
        return Answer(True, how=slowest)

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
                [(op, sorted(taken)) for op, taken in sorted(cell.reduce_ops.items())] if name in reducing() else 0,
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

    def _serves_not(self, device: str) -> Answer:
        return Answer(False, Why.DEVICE, f"it serves {', '.join(self.devices)}, not {device}")

    def _declared_answer(self, op: str, device: str, dtype: str | None, reduce_op: str | None) -> Answer:
        """Answer without regard to whether the backend can run here."""
        if device not in self.devices:
            return self._serves_not(device)
        cell = self.cell(op, device)
        if hindrance := cell.hindrance():
            return Answer(False, why_refused(cell), hindrance)
        if op not in reducing():
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


def counted(numbers: range, what: str) -> str:
    """Name the sizes of groups: "2 ranks", "1 to 4 ranks", "2, 4, 8 ranks", or their hosts, likewise."""
    if len(numbers) > 1 and numbers.step == 1:
        no_end = numbers.stop >= ANY_SIZE.stop
        return f"{numbers[0]} {what}s or more" if no_end else f"{numbers[0]} to {numbers[-1]} {what}s"
    listed = ", ".join(map(str, numbers[:8])) + (" ..." if len(numbers) > 8 else "")
    return f"{listed} {what}{'s' * (listed != '1')}"


def _limit(what: str, cell: Cell, taken: Iterable[str]) -> str:
    text = f"{what} takes {', '.join(taken) or 'nothing'}"
    return f"{text} ({cell.reason})" if cell.reason else text


# The one place that refuses a call which the backend's table does not have, and says which backends could make it


class Others(NamedTuple):
    """The backends beside the one that refuses a call.

    Attributes:
        asked: The tables of those that are loaded; nothing is loaded to word a refusal.
        unasked: The names of those that are installed, as far as they have been seen.
    """

    asked: Iterable[Capabilities] = ()
    unasked: Iterable[str] = ()


def require(
    table: Capabilities,
    op: str,
    device: str,
    dtype: np.dtype[Any] | None,
    reduce_op: ReduceOp | None,
    others: Callable[[], Others],
) -> None:
    """Raise unless the table of the group's backend for a device supports the call; `others` may, and are named.

    Raises:
        TypeError: The dtype holds Python objects.
        UnsupportedOperationError: The table says no.
    """
    if dtype is not None and dtype.hasobject:
        raise TypeError(f"{op}: arrays of Python objects do not travel; use the object collectives")
    if dtype is not None and dtype.itemsize == 0:
        raise TypeError(f"{op}: arrays of dtype {dtype}, whose items have no bytes, do not travel")
    name, reduction = None if dtype is None else dtype_name(dtype), None if reduce_op is None else reduce_op.name
    cell = table.cell(op, device)
    if cell.usable and cell.takes(name, reduction):
        return
    what = op if reduction is None else f"{op}({reduction})"
    if name is not None and cell.usable:
        what += f" of {name}"
    elsewhere = _elsewhere(table.backend, others(), lambda other: other._declared_answer(op, device, name, reduction))
    rounds = reduction == "AVG" and name in REDUCTIONS["BAND"]
    hint = "; averages of integers are no integers: reduce with SUM, and divide" if rounds else ""
    raise UnsupportedOperationError(f"{_refusal(table.backend, what, device, cell, name)}; {elsewhere(op)}{hint}")


def require_feature(table: Capabilities, feature: str, device: str, op: str, others: Callable[[], Others]) -> None:
    """Raise `UnsupportedOperationError` unless `table` has the feature that this call of `op` needs."""
    cell = table.cell(feature, device)
    if not cell.usable:
        elsewhere = _elsewhere(
            table.backend, others(), lambda other: other._declared_answer(feature, device, None, None)
        )
        what = f"{op} with the feature {feature!r} ({FEATURES[feature]})"
        raise UnsupportedOperationError(f"{_refusal(table.backend, what, device, cell)}; {elsewhere(feature)}")


def require_call(table: Capabilities, call: str, device: str, others: Callable[[], Others]) -> None:
    """Raise `UnsupportedOperationError` unless `table` has all that a call needs which is put together of others.

    So all ranks are refused alike, and before anything is sent.
    """
    needs = needs_of(call)
    for name in needs.names:
        if name in FEATURES:
            require_feature(table, name, device, call, others)
            continue
        try:
            require(table, name, device, np.dtype(needs.dtype), None, others)
        except UnsupportedOperationError as error:
            raise UnsupportedOperationError(f"{call}: {error}") from None


def require_group(
    table: Capabilities, size: int, hosts: int | None, devices: Iterable[str], others: Callable[[], Others]
) -> None:
    """Raise `UnsupportedOperationError` unless the backend of these devices makes such a group on so many hosts."""
    if not (answer := table.for_group(size, hosts)):
        elsewhere = _elsewhere(table.backend, others(), lambda other: other.for_group(size, hosts, devices))
        raise UnsupportedOperationError(f"backend {table.backend!r}: {answer.reason}; {elsewhere('')}")


def _refusal(backend: str, what: str, device: str, cell: Cell, dtype: str | None = None) -> str:
    because = cell.lacks(dtype) or (cell.hindrance() if cell.support is Support.CONDITIONAL else cell.reason)
    return f"backend {backend!r} does not do {what} on {device}{f': {because}' if because else ''}"


def _elsewhere(refused: str, others: Others, ask: Callable[[Capabilities], Answer]) -> Callable[[str], str]:
    """Return what says which other backends could do it here, what some lack for it, and which were not asked."""
    could, need, asked = [], [], {refused}
    for table in sorted(others.asked, key=lambda table: table.backend):
        name, here, answer = table.backend, table.here(), ask(table)
        if name != refused and answer and here:
            could.append(name)
        elif name != refused and (answer or answer.why is Why.CONDITION):
            need.append(f"{name} could, but needs: {answer.reason or here.reason}")
        asked.add(name)
    unasked = sorted(set(others.unasked) - asked)

    def text(op: str) -> str:
        parts = [f"backends that could: {', '.join(could)}"] if could else []
        if unasked:
            parts.append(f"`rankwise backends{f' --op {op}' if op else ''}` asks {', '.join(unasked)}")
        elif not could:
            parts.append("no installed backend could")
        return "; ".join([*parts, *need])

    return text
