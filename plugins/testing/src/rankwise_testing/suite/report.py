"""The measured capability table beside the declared one, as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rankwise.kits import FEATURES, OPS, Capabilities, Cell, Device, Support, __version__
from rankwise_testing.suite.coverage import Coverage
from rankwise_testing.suite.measuring import CellName, Measurements
from rankwise_testing.suite.promises import Progress
from rankwise_testing.suite.worlds import REDUCING


def write_report(
    path: Path,
    measurements: Measurements,
    measured: Sequence[CellName],
    features: Mapping[str, bool],
    shown_by: Mapping[str | CellName, str],
    coverage: Coverage,
    progress: Progress,
) -> None:
    """Write what the table declares, what the ranks have shown, and where the two differ.

    Args:
        path: The file.
        measurements: What was measured.
        measured: The cells that were measured.
        features: For each feature that was tried, whether it works.
        shown_by: The test that has shown each of these that differs from the table.
        coverage: What that comes to.
        progress: Which promises are kept, and by which tests they were found broken.
    """
    device, declared = measurements.device, measurements.spec.capabilities
    not_measured = sorted(set(FEATURES) - set(features)) + sorted(set(OPS) - {op for op, _, _ in measured})
    shown = _measured_table(measurements, measured, features).to_dict()
    for kind in ("ops", "features"):
        for name in not_measured:
            shown[device][kind].pop(name, None)
    report = {
        "rankwise": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "backend": declared.backend,
        "device": device,
        "declared": {device: declared.to_dict()[device]},
        "measured": shown,
        "differences": _differences(measurements, measured, features, shown_by),
        "not_measured": not_measured,
        "covered": asdict(coverage),
        "broken_by": progress.broken_by,
        "not_tried": progress.not_tried,
    }
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _measured_table(
    measurements: Measurements, measured: Sequence[CellName], features: Mapping[str, bool]
) -> Capabilities:
    """Return the table that the ranks have shown, in the words of the declared one where they agree."""
    declared, device = measurements.spec.capabilities, measurements.device
    tried = {op for op, _, _ in measured}
    ops = {op: declared.cell(op, device) for op in OPS}
    for op in tried:
        worked = {name for name in measured if name[0] == op and measurements.worked(name)}
        ops[op] = _shown(ops[op], op, worked)
    cells = {name: declared.cell(name, device) for name in FEATURES}
    for name, works in features.items():
        if works != measurements.usable[name]:
            cells[name] = replace(cells[name], support=Support.DERIVED) if works else _FAILED
    return Capabilities(declared.backend, {device: Device(ops, cells)}, sizes=declared.sizes, hosts=declared.hosts)


_FAILED = Cell(Support.NO, "declared, but its tests failed")


def _shown(cell: Cell, op: str, worked: set[CellName]) -> Cell:
    if not worked:
        return cell if cell.support is Support.NO else _FAILED
    support = Support.DERIVED if cell.support is Support.NO else cell.support
    if op not in REDUCING:
        return replace(cell, support=support, dtypes=frozenset(dtype for _, _, dtype in worked))
    reduce_ops: dict[str, set[str]] = {}
    for _, reduce, dtype in worked:
        reduce_ops.setdefault(reduce or "SUM", set()).add(dtype)
    return replace(cell, support=support, reduce_ops={name: frozenset(dtypes) for name, dtypes in reduce_ops.items()})


def _differences(
    measurements: Measurements,
    measured: Sequence[CellName],
    features: Mapping[str, bool],
    shown_by: Mapping[str | CellName, str],
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for op, reduce, dtype in measured:
        declares, works = measurements.declares(op, reduce, dtype), measurements.worked((op, reduce, dtype))
        if declares != works:
            cell = {"op": op, "reduce_op": reduce, "dtype": dtype, "declared": declares, "works": works}
            found.append({**cell, "test": shown_by.get((op, reduce, dtype), "")})
    for name, works in features.items():
        if works != measurements.usable[name]:
            found.append({"feature": name, "declared": not works, "works": works, "test": shown_by.get(name, "")})
    return found
