"""The rooms of the plugin: what its folder listing promises."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

#: Each may use those before it.
ROOMS = ["library", "process", "group", "messages", "collectives", "communicator", "checked", "creation", "plugin"]


def root() -> Path:
    spec = find_spec("rankwise_mpi")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def imports(path: Path) -> Iterator[str]:
    """Yield the rooms that a module imports from, for types too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rankwise_mpi."):
            assert node.module is not None
            yield node.module.split(".")[1]


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_point_downwards(room):
    place = root() / room
    lower = ROOMS[: ROOMS.index(room) + 1]
    for path in place.glob("*.py") if place.is_dir() else [place.with_suffix(".py")]:
        assert set(imports(path)) <= set(lower), path


def test_there_is_no_other_room():
    found = {path.stem for path in root().iterdir() if path.suffix in ("", ".py") and not path.name.startswith("__")}
    assert found == set(ROOMS)


def test_modules_of_one_room_form_no_circle():
    uses: dict[str, set[str]] = {}
    for path in root().rglob("*.py"):
        name = ".".join(path.relative_to(root()).with_suffix("").parts)
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        froms = {node.module or "" for node in tree if isinstance(node, ast.ImportFrom)}
        uses[name] = {found.removeprefix("rankwise_mpi.") for found in froms if found.startswith("rankwise_mpi.")}
    while uses:
        done = {name for name, others in uses.items() if not others & set(uses)}
        assert done, f"these import each other in a circle: {sorted(uses)}"
        uses = {name: others for name, others in uses.items() if name not in done}
