"""`rankwise backends`: which backends there are, and what each can do."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from typing import Any

from rankwise.launching import DTYPES, FEATURES, KNOWN, CapabilityTable, Cell, Support, native
from rankwise_launch.commands import CommandError
from rankwise_launch.interviews import PATIENCE, PATIENCE_S, SLOW_S, Interview, interviews, notes
from rankwise_launch.text import columns, marked

DESCRIPTION = "Show which backends are installed, whether they can run on this machine, and what each can do."

EXAMPLES = """\
examples:
  rankwise backends
  rankwise backends --op all_to_all --device cpu
  rankwise backends --dtype bfloat16                 # which backends support it here
  rankwise backends --diff gloo mpi --markdown
  rankwise backends --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print everything as JSON")
    how.add_argument("--markdown", action="store_true", help="print the capability table as Markdown")
    parser.add_argument("--device", metavar="KIND", help="show only this kind of device: cpu, cuda")
    parser.add_argument("--dtype", metavar="NAME", help="show only operations that support this dtype on this machine")
    parser.add_argument("--op", metavar="NAME", help="show an operation or feature in full, with its dtypes")
    parser.add_argument("--feature", metavar="NAME", help="show one feature in full; with --op, show both")
    parser.add_argument("--diff", nargs=2, metavar=("A", "B"), help="show only where these two backends differ")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, metavar="SECONDS", help=PATIENCE)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    found = interviews(options.patience)
    try:
        table = _asked(CapabilityTable([each.table for each in found if each.table is not None]), options)
    except (ValueError, TypeError) as error:
        raise CommandError(str(error), 2) from None
    if options.json:
        backends = [_backend(interview) for interview in found]
        print(json.dumps({"backends": backends, "native": _native(), "capabilities": table.to_dict()}, indent=2))
    elif options.markdown:
        print(table.to_markdown(), end="")
    else:
        _print(found, table, in_full=bool(options.op or options.feature))
    return 0


def _asked(table: CapabilityTable, options: argparse.Namespace) -> CapabilityTable:
    """Return the part of the table that the options ask for."""
    kinds = sorted({kind for each in table for kind in each.devices})
    part = table.filter(device=options.device)
    if options.device is not None and not len(part):
        known = ", ".join(kinds) or "none"
        raise ValueError(f"no installed backend knows a device {options.device!r}; there are {known}")
    part = part.difference(*options.diff) if options.diff else part
    return part.filter(op=options.op, feature=options.feature, dtype=options.dtype)


def _native() -> dict[str, Any]:
    in_use, text = native.state()
    return {"in_use": in_use, "state": f"{text}, in use" if in_use else text}


def _backend(interview: Interview) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": interview.name,
        "installed": bool(interview.provider),
        "available": interview.available.available,
    }
    if interview.provider:
        found["provider"] = interview.provider
        found["loads"] = not interview.problem
    if interview.table is not None:
        found["devices"] = list(interview.table.devices)
    if not interview.available:
        found["reason"] = interview.available.reason
        found["remedy"] = interview.available.remedy
    if interview.printed:
        found["printed"] = interview.printed
    if interview.took_s > SLOW_S:
        found["took_s"] = round(interview.took_s, 1)
    return found


def _print(found: list[Interview], table: CapabilityTable, in_full: bool) -> None:
    backends = [_backend(interview) for interview in found]
    rows = [["backend", "devices", "from", "on this machine"]]
    rows += [[b["name"], ", ".join(b.get("devices", [])) or "-", b.get("provider", "-"), _state(b)] for b in backends]
    lines = columns(rows).splitlines()
    print("\n".join([marked(lines[0], "bold"), *lines[1:]]))
    for backend in backends:
        if not backend["available"]:
            print(_folded(f"{backend['name']}: {_why(backend)}"))
    for interview in found:
        for note in notes(interview):
            print(_folded(f"{interview.name} ({interview.provider}): {note}"))
    print(f"compiled parts: {_native()['state']}\n")
    if table.names and len(table):
        print("\n".join(line for name in table.names for line in _in_full(table, name)) if in_full else table)
    elif any(interview.table for interview in found):
        print("No backend does that here." if not len(table) else "They do not differ.")
    else:
        print(f"No backend is installed. Begin with: pip install {KNOWN['gloo']}")


def _state(backend: dict[str, Any]) -> str:
    if backend["available"]:
        return "ready"
    if not backend["installed"]:
        return "not installed"
    return "cannot run" if backend["loads"] else "broken"


def _why(backend: dict[str, Any]) -> str:
    if not backend["installed"]:
        return f"pip install {KNOWN[backend['name']]}"
    remedy = f"; {backend['remedy']}" if backend["remedy"] and backend["remedy"] not in backend["reason"] else ""
    return f"{backend['reason']}{remedy}"


def _folded(text: str) -> str:
    """Fit a sentence into the terminal's width; what is piped keeps its lines whole."""
    if not sys.stdout.isatty():
        return f"  {text}"
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _in_full(table: CapabilityTable, op: str) -> list[str]:
    lines = [f"{op}: {FEATURES[op]}"] if op in FEATURES else [op]
    for backend in table:
        for device in backend.devices:
            cell = backend.cell(op, device)
            lines += [f"  {backend.backend} {device}: {_how(cell)}", *(f"    {line}" for line in _takes(cell, op))]
    return lines


def _how(cell: Cell) -> str:
    text = str(cell.support)
    if cell.support is Support.CONDITIONAL:
        text += f", {'yes' if cell.usable else 'no'} on this machine"
    return text + (f" ({cell.reason})" if cell.reason else "")


def _takes(cell: Cell, op: str) -> list[str]:
    if cell.support is Support.NO or op in FEATURES or op == "barrier":
        return []
    if op not in ("all_reduce", "reduce", "reduce_scatter"):
        return [f"dtypes: {' '.join(d for d in DTYPES if d in cell.taken())}", *_lacks(cell)]
    by_dtypes: dict[str, list[str]] = {}
    for name in cell.reduce_ops:
        if cell.takes(None, name):
            by_dtypes.setdefault(" ".join(d for d in DTYPES if cell.takes(d, name)), []).append(name)
    return [*(f"{', '.join(names)}: {dtypes}" for dtypes, names in by_dtypes.items()), *_lacks(cell)]


def _lacks(cell: Cell) -> list[str]:
    return [f"not {dtype}: {lacks}" for dtype in cell.only_if if (lacks := cell.lacks(dtype))]
