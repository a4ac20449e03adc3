"""The one place that refuses a call which the backend's table does not have, and says which backends could make it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from rankwise.backends.capability import Answer, Capabilities
from rankwise.backends.cells import Cell, Support, Why
from rankwise.backends.vocabulary import FEATURES, REDUCTIONS, needs_of
from rankwise.basics.arrays import dtype_name
from rankwise.basics.reduce_op import ReduceOp
from rankwise.errors import UnsupportedOperationError


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
    hint = "; averages of integers are no integers: reduce with SUM, and divide" if _rounds(reduction, name) else ""
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


def _rounds(reduction: str | None, dtype: str | None) -> bool:
    return reduction == "AVG" and dtype in REDUCTIONS["BAND"]


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
