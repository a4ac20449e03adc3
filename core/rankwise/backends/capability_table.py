"""The capability tables of all installed backends: asked, printed, and written as JSON or Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rankwise.backends.capability import FEATURES, OPS, Capabilities, Cell, Support, reduce_op_name
from rankwise.backends.registry import registry
from rankwise.basics.arrays import DTYPES
from rankwise.basics.tracebacks import shortened

__all__ = ["CapabilityTable", "capabilities", "supports"]


class CapabilityTable:
    """What some backends can do, on this machine."""

    def __init__(self, tables: Sequence[Capabilities]) -> None:
        self._tables = {table.backend: table for table in tables}

    def __iter__(self) -> Iterator[Capabilities]:
        return iter(self._tables.values())

    def __getitem__(self, backend: str) -> Capabilities:
        return self._tables[backend]

    def supports(self, op: str, device: str, dtype: Any = None, reduce_op: Any = None) -> bool:
        """Tell whether any of the backends would accept a call; see `Capabilities.supports`."""
        return any([table.supports(op, device, dtype, reduce_op) for table in self])

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data: backend, device, operation or feature, cell."""
        return {name: table.to_dict() for name, table in self._tables.items()}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the table as JSON."""
        import json

        return json.dumps(self.to_dict(), indent=indent)

    def to_markdown(self, notes: bool = True) -> str:
        """Return the table as Markdown, as the documentation shows it: as declared, whatever holds on this machine."""
        head, *body = self._rows(here=False)
        lines = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]
        # Each note a paragraph of its own: they are long.
        below = [line for note in self._notes() for line in ("", note)] if notes else []
        return "\n".join([*lines, *below]) + "\n"

    def __str__(self) -> str:
        rows = self._rows(here=True)
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([*lines, "", *self._notes()]).rstrip()

    __repr__ = __str__

    def _columns(self) -> list[tuple[Capabilities, str]]:
        return [(table, device) for table in self for device in table.devices]

    def _rows(self, here: bool) -> list[list[str]]:
        columns = self._columns()
        reasons = self._reasons()
        head = ["operation", *(f"{table.backend} {device}" for table, device in columns)]
        return [head] + [
            [name, *(_shown(table.cell(name, device), reasons, here) for table, device in columns)]
            for name in (*OPS, *FEATURES)
        ]

    def _reasons(self) -> list[str]:
        cells = [table.cell(name, device) for table, device in self._columns() for name in (*OPS, *FEATURES)]
        return list(dict.fromkeys(cell.reason for cell in cells if cell.reason))

    def _notes(self) -> list[str]:
        notes = [f"[{i}] {reason}" for i, reason in enumerate(self._reasons(), 1)]
        for table, device in self._columns():
            ops = {op: table.cell(op, device) for op in OPS if op != "barrier"}
            for names, dtypes in _grouped({op: _moved(cell) for op, cell in ops.items() if _offered(cell)}):
                notes.append(f"{table.backend} {device}, dtypes of {names}: {dtypes}")
            reduced = table.cell("all_reduce", device)
            if _offered(reduced):
                takes = {name: _reduced(reduced, name) for name in reduced.reduce_ops if reduced.takes(None, name)}
                notes += [f"{table.backend} {device}, {names} of: {dtypes}" for names, dtypes in _grouped(takes)]
        return notes


def capabilities(backend: str | None = None) -> CapabilityTable:
    """Return what the installed backends, or one of them, can do on this machine; printing it shows a table.

    Args:
        backend: The name of one backend; None for all that load.

    Returns:
        The table, which can be asked (`supports`), iterated over by backend, and written as JSON or Markdown.

    Raises:
        BackendNotFoundError: There is no backend of that name.
        PluginError: Its plugin is broken.

    Examples:
        >>> table = dist.capabilities("gloo")
        >>> table.supports("all_reduce", "cpu", "float32")
        True
    """
    with shortened:
        return CapabilityTable([registry.get(backend.lower()).capabilities] if backend else list(registry.tables()))


def supports(op: str, device: str, dtype: Any = None, reduce_op: Any = None, backend: str | None = None) -> bool:
    """Tell whether an installed backend, or the one named, would accept a call on this machine.

    Args:
        op: An operation ("all_reduce") or feature ("any_source").
        device: A kind of device ("cpu", "cuda").
        dtype: Anything NumPy takes for a dtype, or one of the table's names; None asks about any.
        reduce_op: A `ReduceOp` or its name; None asks about any.
        backend: Ask about this one only.

    Returns:
        Whether it would.

    Raises:
        ValueError: There is no such operation, feature or reduce op.
        TypeError: `dtype` is no dtype.
        BackendNotFoundError: There is no backend of that name.

    Examples:
        >>> dist.supports("all_reduce", "cpu", np.float32, dist.ReduceOp.SUM, backend="gloo")
        True
    """
    with shortened:
        reduce_op_name(reduce_op)  # a misspelt name is an error even where no backend is installed
        return capabilities(backend).supports(op, device, dtype, reduce_op)


def _shown(cell: Cell, reasons: list[str], here: bool) -> str:
    text = cell.support.value
    if here and cell.support is Support.CONDITIONAL:
        text = f"conditional: {'yes' if cell.usable else 'no'} here"
    return text + (f" [{reasons.index(cell.reason) + 1}]" if cell.reason else "")


def _offered(cell: Cell) -> bool:
    return cell.support is not Support.NO


def _moved(cell: Cell) -> str:
    return _listed(cell.dtypes)


def _reduced(cell: Cell, name: str) -> str:
    return _listed(frozenset(d for d in DTYPES if cell.takes(d, name)))


def _listed(dtypes: frozenset[str]) -> str:
    missing = [name for name in DTYPES if name not in dtypes]
    if not missing:
        return "all"
    return f"all but {', '.join(missing)}" if len(missing) < 8 else ", ".join(n for n in DTYPES if n in dtypes)


def _grouped(texts: dict[str, str]) -> list[tuple[str, str]]:
    """Put together the names that have the same text."""
    groups: dict[str, list[str]] = {}
    for name, text in texts.items():
        groups.setdefault(text, []).append(name)
    return [(", ".join(names), text) for text, names in groups.items()]
