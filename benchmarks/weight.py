"""Print what rankwise weighs: what `import rankwise` loads and takes beyond NumPy, and the lines of each distribution.

Also how many classes declare all collectives one by one.

    python benchmarks/weight.py [--times 20]

The import is timed in processes of their own, the quickest and the median of which are told. What it loads of another
distribution of this project, such as `rankwise-stores`, is counted with it.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rankwise.backends import COLLECTIVES

ROOT = Path(__file__).parents[1]
IMPORT = """
import sys, time
import numpy
before = set(sys.modules)
began = time.perf_counter()
import rankwise
took = time.perf_counter() - began
files = [module.__file__ or "" for name, module in list(sys.modules.items())
         if name not in before and name.partition(".")[0].partition("_")[0] == "rankwise"]
print(took, len(files), sum(len(open(file).readlines()) for file in files if file.endswith(".py")))
"""


def imported() -> tuple[float, int, int]:
    """Return the seconds that `import rankwise` takes in a new process, and the modules and lines that it loads."""
    done = subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True, timeout=60)
    took, modules, lines = done.stdout.split()
    return float(took), int(modules), int(lines)


def distributions() -> dict[str, tuple[int, int]]:
    """Return the lines of Python of each distribution, and how many of them are docstrings."""
    folders = {"rankwise": ROOT / "core", **{path.parent.name: path for path in sorted(ROOT.glob("plugins/*/src"))}}
    files = {name: list(folder.rglob("*.py")) for name, folder in folders.items()}
    return {name: (sum(map(_lines, paths)), sum(map(_docstrings, paths))) for name, paths in files.items()}


def declaring() -> list[str]:
    """Return the classes that have a method for each of the collectives that every backend has."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for room in ("core", "plugins") for path in _sources(room))
    classes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return [each.name for each in classes if {getattr(node, "name", "") for node in each.body} >= set(COLLECTIVES)]


def _sources(room: str) -> Iterator[Path]:
    return (ROOT / room).rglob("*.py")


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _docstrings(path: Path) -> int:
    said = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, said))
    firsts = (node.body[0] for node in nodes if ast.get_docstring(node, clean=False) is not None)
    return sum((first.end_lineno or first.lineno) - first.lineno + 1 for first in firsts)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="how often the import is timed; default 20")
    each = [imported() for _ in range(parser.parse_args().times)]
    seconds = sorted(took for took, _, _ in each)
    print(f"import rankwise: {each[0][1]} modules, {each[0][2]:,} lines")
    print(f"beyond NumPy: {seconds[0] * 1e3:.0f} ms at best, {statistics.median(seconds) * 1e3:.0f} ms in the middle")
    print(f"classes that declare all collectives: {len(declaring())}")
    for name, (lines, docstrings) in distributions().items():
        print(f"  {name:10} {lines:7,} lines, of which {docstrings:6,} are docstrings")


if __name__ == "__main__":
    main()
