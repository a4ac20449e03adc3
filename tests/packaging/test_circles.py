"""Modules import each other in one direction; the few circles that are left are named here, each with its reason.

Imports within functions and those for types count too: who reads a module has to know what it names. Between rooms the
layer contracts in pyproject.toml say more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {path.parent.name: path.parent for path in sorted(ROOT.glob("plugins/*/src/*/__init__.py"))}
PACKAGES["rankwise"] = ROOT / "core" / "rankwise"
#: Imports that close a circle: in which package who imports whom, and why that is the better way.
DEFENDED = {
    (
        "rankwise",
        "backends.capability",
        "backends.plain_tables",
    ): "plain data is a table's own, and few need it",
    ("rankwise_gloo_tcp", "collectives.strategy", "communicator"): "what runs a group's calls knows it",
    ("rankwise_nccl", "queues.works", "queues.queue"): "a queue holds its works, and a work knows its queue",
    ("rankwise_torch", "creation", "names"): "names are registered at once, all the rest is loaded later",
    ("rankwise_torch", "group", "creation"): "a group makes others of its kind",
}


def modules(package: str) -> dict[str, Path]:
    root = PACKAGES[package]
    names = {path: (package, *path.relative_to(root).with_suffix("").parts) for path in root.rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): path for path, parts in names.items()}


def uses(package: str, closing: tuple[str, str, str] | None = None) -> dict[str, set[str]]:
    """Return which others of its package each module imports, without the defended imports but one."""
    known = modules(package)
    found = {name: set(imports(path, known)) - {name} for name, path in known.items()}
    for where, importer, imported in DEFENDED.keys() - {closing}:
        if where == package:
            found[f"{package}.{importer}"].remove(f"{package}.{imported}")  # which has to be there
    return found


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield which of the known modules a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_form_no_circle_but_those_with_a_reason(package):
    TopologicalSorter(uses(package)).prepare()


@pytest.mark.parametrize("defended", DEFENDED, ids=".".join)
def test_each_defended_import_closes_a_circle(defended):
    with pytest.raises(CycleError):
        TopologicalSorter(uses(defended[0], defended)).prepare()
