"""The capability tables of all installed backends: asked, reduced, and as plain data; `rankwise-launch` draws them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from rankwise.backends.capability import Answer, Capabilities
from rankwise.backends.cells import Condition, Device, Support, Why
from rankwise.backends.registry import registry
from rankwise.backends.vocabulary import (
    FEATURES,
    OPS,
    device_kind,
    dtype_word,
    nearest,
    needs_of,
    operation,
    reduce_op_name,
    reducing,
)
from rankwise.basics.arguments import require, whole_number
from rankwise.basics.entry_points import part
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.tracebacks import shortened
from rankwise.errors import PluginError

_NAMES = (*OPS, *FEATURES)


class CapabilityTable:
    """What some backends can do, on this machine.

    Printed it is text, in a notebook HTML. `filter` and `difference` return smaller ones of the same kind.

    Args:
        tables: The table of each backend.
        names: The operations and features that are shown; all of them if None.
    """

    def __init__(self, tables: Sequence[Capabilities], names: Sequence[str] | None = None) -> None:
        self._tables = {table.backend: table for table in tables}
        self._names = _NAMES if names is None else tuple(names)

    def __iter__(self) -> Iterator[Capabilities]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)

    def __getitem__(self, backend: str) -> Capabilities:
        return self._tables[backend]

    @property
    def names(self) -> tuple[str, ...]:
        """The operations and features that are shown."""
        return self._names

    def __eq__(self, other: object) -> bool:
        """Tell whether another table shows the same: names, backends and cells, as they are on this machine."""
        if not isinstance(other, CapabilityTable):
            return NotImplemented
        return self._names == other._names and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self._names, tuple(self._tables)))

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
        """Return whether any of the backends would accept a call; see `Capabilities.supports`."""
        return any(self.ask(op, device, dtype, reduce_op, features=features, size=size, hosts=hosts).values())

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
    ) -> dict[str, Answer]:
        """Return each backend's answer: how it would be done, or the reason of a "no"; see `Capabilities.ask`."""
        _understood(op, dtype, reduce_op)
        kind = device_kind(device, self._kinds())
        features = tuple(features)
        return {
            name: table.ask(op, kind, dtype, reduce_op, features=features, size=size, hosts=hosts)
            for name, table in self._tables.items()
        }

    def filter(
        self,
        *,
        backend: str | None = None,
        device: Any = None,
        op: str | None = None,
        feature: str | None = None,
        dtype: Any = None,
        reduce_op: Any = None,
    ) -> CapabilityTable:
        """Return a part of the table.

        Args:
            backend: One backend.
            device: One kind of device.
            op: One operation.
            feature: One feature; with `op`, both.
            dtype: The operations that some backend does with this dtype here, and the backends that do any of them.
            reduce_op: The reductions that support this reduce op, and the backends that have any of them.

        Raises:
            ValueError: There is no such backend, device, operation, feature, dtype or reduce op.
        """
        tables = list(self)
        if backend is not None:
            tables = [self._of(backend)]
        if device is not None:
            kind = device_kind(device, self._kinds())
            tables = [replace(t, devices={kind: t.devices[kind]}) for t in tables if kind in t.devices]
        names = [name for name in self._names if name in {operation(n) for n in (op, feature) if n is not None}]
        if op is None and feature is None:
            names = list(self._names)
        if dtype is not None or reduce_op is not None:
            word, reduction = dtype_word(dtype), reduce_op_name(reduce_op)
            names = [n for n in names if n in (reducing() if reduction else OPS) and n != "barrier"]
            tables = [t for t in tables if any(t.ask(n, d, word, reduction) for n in names for d in t.devices)]
            names = [n for n in names if any(t.ask(n, d, word, reduction) for t in tables for d in t.devices)]
        return CapabilityTable(tables, names)

    def difference(self, one: str, other: str) -> CapabilityTable:
        """Return where two backends of the table differ, on each device that either of them serves.

        Raises:
            ValueError: The table has no such backend.
        """
        pair = [self._of(name) for name in (one, other)]
        devices = list(dict.fromkeys(device for table in pair for device in table.devices))
        both = [replace(t, devices={d: t.devices.get(d, Device({})) for d in devices}) for t in pair]
        rows: list[dict[tuple[Any, ...], Any]] = [
            {
                (row["device"], row["name"], row["reduce_op"]): (row["usable"], row["support"], row["dtypes"])
                for row in CapabilityTable([table]).rows()
            }
            for table in both
        ]
        differing = {key[1] for key in {*rows[0], *rows[1]} if rows[0].get(key) != rows[1].get(key)}
        return CapabilityTable(both, [name for name in self._names if name in differing])

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data: backend, device, operation or feature, cell."""
        return {
            backend: {
                device: cells
                | {
                    kind: {name: cell for name, cell in cells[kind].items() if name in self._names}
                    for kind in ("ops", "features")
                }
                for device, cells in table.to_dict().items()
            }
            for backend, table in self._tables.items()
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return the table as JSON."""
        import json

        return json.dumps(self.to_dict(), indent=indent)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each cell, and for each reduce op of a reduction, as `pandas.DataFrame` takes them.

        Each has `backend`, `device`, `kind` ("op" or "feature"), `name`, `reduce_op` (or None), `support`, `usable` on
        this machine, `why` (a word for programs: see `Why`), `reason`, and `dtypes` (a tuple of names).
        """
        return [
            {
                "backend": backend,
                "device": device,
                "kind": kind[:-1],
                "name": name,
                "reduce_op": reduction,
                "support": cell["support"],
                "usable": cell["usable"],
                "why": cell.get("why", ""),
                "reason": cell.get("because", cell.get("reason", "")),
                "dtypes": tuple(dtype for dtype in dtypes if dtype not in cell.get("lacks", ())),
            }
            for backend, devices in self.to_dict().items()
            for device, cells in devices.items()
            for kind in ("ops", "features")
            for name, cell in cells[kind].items()
            for reduction, dtypes in cell.get("reduce_ops", {None: cell.get("dtypes", ())}).items()
        ]

    def to_markdown(self, notes: bool = True) -> str:
        """Return the table as Markdown, as the documentation shows it: as declared, whatever holds on this machine.

        Raises:
            PluginError: `rankwise-launch`, which draws tables, is not installed.
        """
        return _drawing().markdown(self, notes)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        try:
            return _drawing().text(self)  # type: ignore[no-any-return]
        except PluginError as error:
            return f"<CapabilityTable of {', '.join(self._tables) or 'no backend'}; to see it: {error.remedy}>"

    __repr__ = __str__

    def _repr_html_(self) -> str | None:
        """Return the table as a notebook shows it; where nothing draws tables, a notebook shows the text."""
        try:
            return _drawing().html(self)  # type: ignore[no-any-return]
        except PluginError:
            return None

    def _of(self, backend: str) -> Capabilities:
        if backend.lower() not in self._tables:
            raise ValueError(f"the table has no backend {backend!r}; {nearest(backend, self._tables)}")
        return self._tables[backend.lower()]

    def _kinds(self) -> list[str]:
        return [device for table in self for device in table.devices]


def _drawing() -> Any:
    """Return what shows tables to people."""
    return part("drawn_tables", "rankwise-launch")


def capabilities(backend: str | None = None) -> CapabilityTable:
    """Return what the installed backends, or one of them, support on this machine; print it to see a table.

    Args:
        backend: The name of one backend; None for all that load.

    Returns:
        The table: query it (`supports`, and `ask` for the reason of a "no"), reduce it (`filter`, `difference`),
        iterate over its backends, or export it (`to_dict`, `to_json`, `rows`, `to_markdown`).

    Raises:
        BackendNotFoundError: There is no backend of that name.
        PluginError: Its plugin is broken.

    Examples:
        >>> table = dist.capabilities("gloo")
        >>> table.supports("all_reduce", "cpu", "float32")
        True
        >>> table.ask("all_reduce", "cpu", "S5")["gloo"].why
        <Why.DTYPE: 'dtype'>
        >>> rows = table.filter(device="cuda", dtype="float32").rows()
        >>> [row["name"] for row in rows][:1]
        []
    """
    with shortened:
        require(backend=backend)
        return CapabilityTable([registry.get(backend.lower()).capabilities] if backend else list(registry.tables()))


#: What `supports` has found out: the registry's generation, until when a "no" of all backends holds, and on what a
#: "yes" depends, which is None for a "no".
_found: dict[Any, tuple[object, float, list[Condition] | None]] = {}
_MOST_FOUND = 4096
#: After so long a question about no backend in particular notices one that was installed meanwhile.
_NO_HOLDS_S = 1.0


def supports(
    op: str,
    device: Any,
    dtype: Any = None,
    reduce_op: Any = None,
    backend: str | None = None,
    *,
    features: Iterable[str] = (),
    size: int | None = None,
    hosts: int | None = None,
) -> bool:
    """Return whether an installed backend, or the one named, would accept a call on this machine.

    A backend that cannot run here accepts none. `capabilities().ask(...)` tells how a call would be done, or why not.

    Args:
        op: A public call ("all_gather_object"), operation ("all_reduce") or feature ("any_source").
        device: A kind of device ("cpu", "cuda"), with or without an index ("cuda:0"), a library's device, or an array.
        dtype: Anything NumPy takes for a dtype, or one of the table's names; None asks about any.
        reduce_op: A `ReduceOp` or its name; None asks about any.
        backend: Ask about this one only.
        features: What the call needs besides, such as "async" for `async_op=True`.
        size: How many ranks the group has; None asks about a group that is there.
        hosts: On how many hosts they are, likewise.

    Returns:
        Whether it would.

    Raises:
        ValueError: There is no such call, operation, feature, device, dtype or reduce op.
        TypeError: `device` or `dtype` is something else.
        BackendNotFoundError: There is no backend of that name.

    Examples:
        >>> asked = "all_reduce", "cpu", np.float32, dist.ReduceOp.SUM
        >>> dist.supports(*asked, backend="gloo", features=("async",))
        True
    """
    with shortened:
        reduction = reduce_op.name if type(reduce_op) is ReduceOp else reduce_op
        if size is not None:  # before a key is made of it: True and 1.0 equal 1
            size = whole_number(size, "size", 1)
        if hosts is not None:
            hosts = whole_number(hosts, "hosts", 1)
        return _remembered(op, device, dtype, reduction, backend, features, size, hosts)


def _remembered(*asked: Any) -> bool:
    """Tell whether a backend would accept a call, and remember it."""
    key: Any = asked
    try:
        found = _found.get(key)
    except (TypeError, ValueError):  # an array is no key
        key = found = None
    if found is not None and found[0] is registry.generation:
        _, until, depends = found
        if depends is None:
            if asked[4] is not None or monotonic() < until:
                return False
        elif not depends or not any(condition.hindrance() for condition in depends):
            return True
    before = registry.generation
    depends, lasts = _supported(*asked)
    if lasts and key is not None and registry.generation is before:
        if len(_found) >= _MOST_FOUND:
            _found.clear()
        _found[key] = before, monotonic() + _NO_HOLDS_S, depends
    return depends is not None


def _supported(
    op: str,
    device: Any,
    dtype: Any,
    reduce_op: Any,
    backend: str | None,
    features: Iterable[str],
    size: int | None,
    hosts: int | None,
) -> tuple[list[Condition] | None, bool]:
    """Return the conditions of the first backend that would accept a call, and whether that lasts."""
    require(backend=backend, features=features)
    _understood(op, dtype, reduce_op)
    lasts = True
    kind, features = _kind(device) if backend is None else device, tuple(features)
    for table in registry.tables() if backend is None else [registry.get(backend.lower()).capabilities]:
        answer = table.ask(op, kind, dtype, reduce_op, features=features, size=size, hosts=hosts)
        if answer:
            return _conditions(table, op, device_kind(kind, table.devices), dtype_word(dtype), features), True
        lasts = lasts and answer.why is not Why.CONDITION
    return None, lasts


def _conditions(
    table: Capabilities, op: str, device: str, dtype: str | None, features: Iterable[str]
) -> list[Condition]:
    """Return what a "yes" depends on that may be otherwise later."""
    needs = needs_of(op)
    cells = [table.cell(name, device) for name in (*needs.names, *features)]
    found = [Condition(cell.reason, cell.holds) for cell in cells if cell.support is Support.CONDITIONAL]
    return [*found, *filter(None, (cell.only_if.get(needs.dtype or dtype or "") for cell in cells))]


def _understood(op: str, dtype: Any, reduce_op: Any) -> None:
    """Raise `ValueError` or `TypeError` if a question cannot be understood, even if there is no backend."""
    needs_of(op, reduce_op_name(reduce_op)), dtype_word(dtype)


def _kind(device: Any) -> str:
    try:
        return device_kind(device)
    except ValueError:  # unless a backend knows it: all are asked, before it is called a mistake
        return device_kind(device, {kind for table in registry.tables() for kind in table.devices})
