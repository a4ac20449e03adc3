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


@pytest.fixture(scope="module", params=[3, 4])
def ranks_of_mpi(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    pytest.importorskip("mpi4py")
    with RankPool(request.param, launch=mpiexec(request.param), env=environment()) as pool:
        yield pool


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_shows_what_the_one_over_mpi4py_shows(ranks_of_mpi: RankPool, name: str) -> None:
    there = ranks_of_mpi.run(output_of, GALLERY / "mpi4py" / f"{name}.py", timeout=PATIENCE_S)
    assert there[0].startswith("right: ")
    assert ranks_of_mpi.run(output_of, GALLERY / f"{name}.py", "mpi", timeout=PATIENCE_S) == there


def test_each_program_stands_beside_one_over_mpi4py() -> None:
    assert sorted(path.stem for path in (GALLERY / "mpi4py").glob("*.py")) == PROGRAMS


@pytest.mark.parametrize("name", ["heat", "prefix", "tasks", "words"])
def test_a_program_is_shorter_than_the_one_over_mpi4py(name: str) -> None:
    assert lines_of(GALLERY / f"{name}.py") < lines_of(GALLERY / "mpi4py" / f"{name}.py")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_its_entry_with_a_small_picture_and_its_lines(name: str) -> None:
    page = (ROOT / "docs/gallery.md").read_text()
    entry = page.partition(f" {{ #{name} }}\n")[2].partition("\n## ")[0]
    assert re.search(rf"^!\[.{{40,}}\]\(images/gallery/{name}\.svg\)$", entry, re.MULTILINE)
    assert (ROOT / f"docs/images/gallery/{name}.svg").stat().st_size < 30_000
    ours, theirs = (lines_of(path / f"{name}.py") for path in (GALLERY, GALLERY / "mpi4py"))
    assert re.findall(r"/examples/gallery/(\S+)\.py\): (\d+)", entry) == [
        (name, str(ours)),
        (f"mpi4py/{name}", str(theirs)),
    ]


def test_the_page_and_the_benchmark_have_each_program_in_order() -> None:
    told = re.findall(r"^## .+ \{ #(\w+) \}$", (ROOT / "docs/gallery.md").read_text(), re.MULTILINE)
    timed = re.findall(r'^    "(\w+)": \(".+ lambda rank:', (ROOT / "benchmarks/gallery.py").read_text(), re.MULTILINE)
    assert told == timed == PROGRAMS
