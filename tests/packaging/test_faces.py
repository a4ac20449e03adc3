"""Distributions know each other by their faces: public modules, which are named here, and nothing behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {path.parent.name: path.parent for path in sorted(ROOT.glob("plugins/*/src/*/__init__.py"))}
#: Beside the packages themselves.
FACES = {
    *("rankwise.backends", "rankwise.cli", "rankwise.errors"),
    *("rankwise.binding", "rankwise.kits", "rankwise.launching", "rankwise.observing", "rankwise.stores"),
    "rankwise_launch.toolbox",
    *("rankwise_network.doors", "rankwise_network.interface", "rankwise_network.launcher_env"),
    *("rankwise_network.outage", "rankwise_network.ports", "rankwise_network.processes", "rankwise_network.secret"),
    "rankwise_network.slurm",
    "rankwise_stores.serving",
    "rankwise_watch.reading",
}
#: What pages have programs import besides.
ON_PAGES = {"rankwise_local.communicator", "rankwise_ray.train", "rankwise_tools.exporters.otel"}


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in {"rankwise", *SOURCES}


def is_module(name: str) -> bool:
    """Tell whether there is a module of that name."""
    package, *rest = name.split(".")
    path = (SOURCES[package] if package in SOURCES else ROOT / "core/rankwise").joinpath(*rest)
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def imported(path: Path) -> Iterator[str]:
    """Yield each module of ours that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if is_module(whole) else node.module


def lists_its_own(path: Path) -> bool:
    """Tell whether a module has `__all__` for names of its own alone, as it hands on no other's."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lists = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    listed = {one.value for node in lists for one in ast.walk(node) if isinstance(one, ast.Constant)}
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return bool(lists) and not listed & {alias.asname or alias.name for node in froms for alias in node.names}


@pytest.mark.parametrize("name", SOURCES)
def test_a_distribution_sees_the_faces_of_others_alone(name: str) -> None:
    behind = {
        f"{path.relative_to(SOURCES[name])} imports {module}"
        for path in SOURCES[name].rglob("*.py")
        for module in imported(path)
        if module.partition(".")[0] != name and "." in module and module not in FACES
    }
    assert not behind


@pytest.mark.parametrize("face", FACES | ON_PAGES)
def test_each_face_is_there_and_lists_its_names(face: str) -> None:
    assert is_module(face)
    package, *rest = face.split(".")
    path = (SOURCES[package] if package in SOURCES else ROOT / "core/rankwise").joinpath(*rest)
    path = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    assert "__all__" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("package", ["rankwise", *SOURCES])
def test_a_module_that_is_no_face_tells_what_is_private_by_underscores_alone(package: str) -> None:
    root = SOURCES.get(package, ROOT / "core/rankwise")
    inner = [path.relative_to(root) for path in root.rglob("*.py") if path.name != "__init__.py"]
    named = {".".join([package, *path.with_suffix("").parts]): root / path for path in inner}
    assert [module for module in named if module not in FACES | ON_PAGES and lists_its_own(named[module])] == []
