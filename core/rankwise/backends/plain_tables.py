"""Capability tables as plain data, and back: for JSON, for other processes, and for copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rankwise.backends.capability import ANY_SIZE, Capabilities
from rankwise.backends.cells import Availability, Cell, Condition, Device, Support, Why, in_order, why_refused
from rankwise.backends.vocabulary import FEATURES, OPS, reducing


class Memo:
    """Asks each condition once, as many cells share theirs; called with a cell, it returns `cell.hindrance()`."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, Support, str], str] = {}

    def __call__(self, cell: Cell) -> str:
        key = (id(cell.holds), cell.support, cell.reason)
        if key not in self._asked:
            self._asked[key] = cell.hindrance()
        return self._asked[key]


def plain_table(table: Capabilities) -> dict[str, Any]:
    """Return a whole table, with what holds on this machine."""
    hindrance, here = Memo(), table.here()
    return {
        device: {
            "ops": {op: _plain(table, op, device, hindrance, here) for op in OPS},
            "features": {name: _plain(table, name, device, hindrance, here) for name in FEATURES},
            **{name: _steps(getattr(table, name)) for name in ("sizes", "hosts")},
        }
        for device in table.devices
    }


def table_of(backend: str, plain: Mapping[str, Any], here: Availability | None) -> Capabilities:
    """Return the table again; whether its backend can run is as it was, or not known."""
    devices = {
        device: Device(*({name: cell_of(cell) for name, cell in cells[kind].items()} for kind in ("ops", "features")))
        for device, cells in plain.items()
    }
    first: Mapping[str, Any] = next(iter(plain.values()), {})
    sizes, hosts = (range(*first.get(name, _steps(ANY_SIZE))) for name in ("sizes", "hosts"))
    found = Capabilities(backend, devices, sizes, hosts)
    return found if here is None else replace(found, here=lambda: here)


def cell_of(plain: Mapping[str, Any]) -> Cell:
    """Return a cell again, whose conditions stay as they were."""
    limits: dict[str, Any] = {}
    if "reduce_ops" in plain:
        limits["reduce_ops"] = {name: frozenset(dtypes) for name, dtypes in plain["reduce_ops"].items()}
    if "dtypes" in plain:
        limits["dtypes"] = frozenset(plain["dtypes"])
    limits["how"] = Support(plain.get("how", Support.NATIVE))
    limits["only_if"] = {
        dtype: Condition(reason, bool if dtype in plain["lacks"] else _does)
        for dtype, reason in plain.get("only_if", {}).items()
    }
    held = plain["usable"] or plain.get("why") == Why.UNAVAILABLE
    return Cell(Support(plain["support"]), plain.get("reason", ""), holds=_does if held else bool, **limits)


def _plain(table: Capabilities, name: str, device: str, hindrance: Memo, here: Availability) -> dict[str, Any]:
    cell = table.cell(name, device)
    plain: dict[str, Any] = {"support": cell.support.value}
    if cell.reason:
        plain["reason"] = cell.reason
    if cell.support is Support.CONDITIONAL and cell.how is not Support.NATIVE:
        plain["how"] = cell.how.value
    because = hindrance(cell)
    plain["usable"] = bool(here) and not because
    if not plain["usable"]:
        plain["why"] = (why_refused(cell) if because else Why.UNAVAILABLE).value
        if (because or here.reason) != cell.reason:
            plain["because"] = because or here.reason
    if cell.support is Support.NO or name in FEATURES or name == "barrier":
        return plain
    if cell.only_if:
        plain["only_if"] = {dtype: condition.reason for dtype, condition in cell.only_if.items()}
        plain["lacks"] = [dtype for dtype in cell.only_if if here and cell.lacks(dtype)]
        cell = replace(cell, only_if={})
    if name in reducing():
        plain["reduce_ops"] = {each: in_order(taken) for each in cell.reduce_ops if (taken := cell.reduced(each))}
    else:
        plain["dtypes"] = in_order(cell.dtypes)
    return plain


def _steps(numbers: range) -> list[int]:
    return [numbers.start, numbers.stop, numbers.step]


def _does() -> bool:
    return True
