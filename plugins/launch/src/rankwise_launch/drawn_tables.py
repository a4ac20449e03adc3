"""Capability tables as people see them: text for a terminal, Markdown for pages, HTML for notebooks."""

from __future__ import annotations

from html import escape

from rankwise.launching import (
    ANY_HOSTS,
    ANY_SIZE,
    DTYPES,
    OPS,
    Capabilities,
    CapabilityTable,
    Cell,
    Memo,
    Support,
    counted,
)


def text(table: CapabilityTable) -> str:
    """Return a table as text, as it is on this machine."""
    rows = _rows(table, here=True)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, "", *_notes(table)]).rstrip()


def markdown(table: CapabilityTable, notes: bool) -> str:
    """Return a table as Markdown: as declared, whatever holds on this machine."""
    head, *body = _rows(table, here=False)
    lines = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]
    # Each note a paragraph of its own: they are long.
    below = [line for note in _notes(table) for line in ("", note)] if notes else []
    return "\n".join([*lines, *below]) + "\n"


def html(table: CapabilityTable) -> str:
    """Return a table as a notebook shows it; a cell's reason comes up under the pointer."""
    head, *body = _rows(table, here=True)
    reasons = {(r["name"], f"{r['backend']} {r['device']}"): r["reason"] for r in table.rows()}
    lines = ["<table>", f"<tr>{''.join(f'<th>{escape(column)}</th>' for column in head)}</tr>"]
    for name, *cells in body:
        shown = [
            f'<td title="{escape(reasons[name, column])}">{escape(cell)}</td>'
            for column, cell in zip(head[1:], cells, strict=True)
        ]
        lines.append(f"<tr><th>{escape(name)}</th>{''.join(shown)}</tr>")
    return "\n".join([*lines, "</table>", *(f"<p>{escape(note)}</p>" for note in _notes(table))])


def _columns(table: CapabilityTable) -> list[tuple[Capabilities, str]]:
    return [(backend, device) for backend in table for device in backend.devices]


def _rows(table: CapabilityTable, here: bool) -> list[list[str]]:
    """Return the head, and a row for each operation and feature."""
    columns, hindrance, reasons = _columns(table), Memo(), _reasons(table)
    runs = {backend.backend: not here or bool(backend.here()) for backend in table}
    head = ["operation", *(f"{backend.backend} {device}" for backend, device in columns)]
    return [head] + [
        [
            name,
            *(
                _shown(backend.cell(name, device), reasons, hindrance if here else None, runs[backend.backend])
                for backend, device in columns
            ),
        ]
        for name in table.names
    ]


def _reasons(table: CapabilityTable) -> list[str]:
    cells = [backend.cell(name, device) for backend, device in _columns(table) for name in table.names]
    return list(dict.fromkeys(cell.reason for cell in cells if cell.reason))


def _notes(table: CapabilityTable) -> list[str]:
    notes = [f"[{i}] {reason}" for i, reason in enumerate(_reasons(table), 1)]
    notes += [f"{t.backend}: groups of {counted(t.sizes, 'rank')}" for t in table if t.sizes != ANY_SIZE]
    notes += [f"{t.backend}: groups on {counted(t.hosts, 'host')}" for t in table if t.hosts != ANY_HOSTS]
    for backend, device in _columns(table):
        ops = {op: backend.cell(op, device) for op in table.names if op in OPS and op != "barrier"}
        for names, dtypes in _grouped({op: _listed(cell.dtypes) for op, cell in ops.items() if _offered(cell)}):
            notes.append(f"{backend.backend} {device}, dtypes of {names}: {dtypes}")
        reduced = backend.cell("all_reduce", device)
        if "all_reduce" in ops and _offered(reduced):
            takes = {name: _reduced(reduced, name) for name in reduced.reduce_ops if reduced.declares(None, name)}
            notes += [f"{backend.backend} {device}, {names} of: {dtypes}" for names, dtypes in _grouped(takes)]
        notes += [f"{backend.backend} {device}, {names}: {needs}" for names, needs in _grouped(_needed(ops))]
    return notes


def _shown(cell: Cell, reasons: list[str], hindrance: Memo | None, runs: bool) -> str:
    text = cell.support.value
    if hindrance is not None and cell.support is Support.CONDITIONAL:
        text = f"conditional: {'yes' if runs and not hindrance(cell) else 'no'} here"
    elif not runs and cell.support is not Support.NO:
        text = f"{text}: not here"
    return text + (f" [{reasons.index(cell.reason) + 1}]" if cell.reason else "")


def _offered(cell: Cell) -> bool:
    return cell.support is not Support.NO


def _reduced(cell: Cell, name: str) -> str:
    return _listed(frozenset(d for d in DTYPES if cell.declares(d, name)))


def _needed(ops: dict[str, Cell]) -> dict[str, str]:
    """Return what each dtype depends on that some operations do not take everywhere."""
    needing: dict[tuple[str, str], list[str]] = {}
    for op, cell in ops.items():
        for dtype, condition in cell.only_if.items():
            needing.setdefault((dtype, condition.reason), []).append(op)
    return {dtype: f"{reason} ({', '.join(names)})" for (dtype, reason), names in needing.items()}


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
