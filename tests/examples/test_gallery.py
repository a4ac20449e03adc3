"""Each program of the gallery finds that its result is right, on any number of ranks; and how many lines it takes."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from rankwise_launch.toolbox import environment, mpiexec
from rankwise_testing import RankPool

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "examples" / "gallery"
PROGRAMS = sorted(path.stem for path in GALLERY.glob("*.py"))
BESIDE = sorted(path.stem for path in (GALLERY / "mpi4py").glob("*.py"))
PATIENCE_S = 60.0


def output_of(path: Path, *args: str) -> str:
    """Run a program, and return what it prints."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), mock.patch.object(sys, "argv", [str(path), *args]):
        runpy.run_path(str(path), run_name="__main__")
    return shown.getvalue()


def lines_of(path: Path) -> int:
    """Count the lines that are neither empty nor a comment nor a docstring."""
    tree = ast.parse(path.read_text())
    holders = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]
    docs = [node.body[0] for node in holders if ast.get_docstring(node)]
    written = {number for doc in docs for number in range(doc.lineno, (doc.end_lineno or doc.lineno) + 1)}
    lines = enumerate(path.read_text().splitlines(), 1)
    return sum(bool(line.strip()) and line.strip()[0] != "#" and number not in written for number, line in lines)


@pytest.fixture(scope="module", params=["gloo", "mpi"])
def backend(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[int, RankPool]]]:
    pools: dict[int, RankPool] = {}
    yield request.param, pools
    for pool in pools.values():
        pool.close()


def on(backend: tuple[str, dict[int, RankPool]], size: int) -> RankPool:
    name, pools = backend
    if size not in pools:
        pools[size] = RankPool(size, **({"launch": mpiexec(size), "env": environment()} if name == "mpi" else {}))
    return pools[size]


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_right(backend: tuple[str, dict[int, RankPool]], name: str, size: int) -> None:
    first, *others = on(backend, size).run(output_of, GALLERY / f"{name}.py", backend[0], timeout=PATIENCE_S)
    assert first.startswith("right: ")
    assert others == [""] * (size - 1)


@pytest.mark.parametrize("name", BESIDE)
def test_a_program_shows_what_the_one_over_mpi4py_shows(name: str) -> None:
    pytest.importorskip("mpi4py")
    with RankPool(4, launch=mpiexec(4), env=environment()) as pool:
        there = pool.run(output_of, GALLERY / "mpi4py" / f"{name}.py", timeout=PATIENCE_S)
        assert pool.run(output_of, GALLERY / f"{name}.py", "mpi", timeout=PATIENCE_S) == there


@pytest.mark.parametrize("name", BESIDE)
def test_a_program_is_shorter_than_the_one_over_mpi4py(name: str) -> None:
    assert lines_of(GALLERY / f"{name}.py") < lines_of(GALLERY / "mpi4py" / f"{name}.py")


def test_the_page_tells_how_long_the_programs_are() -> None:
    rows = re.findall(
        r"^\| \[`(\w+)`\]\S+ \| .* \| (\d+) \| (\d*) \|$", (ROOT / "docs" / "arrays.md").read_text(), re.M
    )
    assert rows == [
        (
            name,
            str(lines_of(GALLERY / f"{name}.py")),
            str(lines_of(GALLERY / "mpi4py" / f"{name}.py")) if name in BESIDE else "",
        )
        for name in PROGRAMS
    ]
