"""Plant mistakes in a room, a file or folder of the code, one at a time, and show those that its tests do not notice.

A mutant differs from the code in one place: another comparison, operator or number, `and` for `or`, a condition turned
round, a statement, an early return or a keyword argument that is missing. Its tests run in a copy of the tree, up to
the first that fails; those that take much too long have noticed it too. A survivor asks for a sharper test, unless it
is no mistake.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import cache_from_source, find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

#: The tests of a room in `tests/core`: fast ones alone, on threads. The longest beginning of its path counts. Without a
#: row those of `core/rankwise/NAME` begin with its name, and those of a plugin are in its folder of `tests/plugins`.
TESTS = {
    "core/rankwise/basics/ending": "ending work_futures work",
    "core/rankwise/basics/reduce_op": "reduce_op capability check derived",
    "core/rankwise/basics": "deadline errors arrays arguments_matrix ending work_futures work",
    "core/rankwise/calls": "check calling several_arrays overlap arrays work arguments_matrix groups",
    "core/rankwise/collective/issue_order": "issue_order ending work_futures work",
    "core/rankwise/collective/algorithms": "algorithms derived",
    "core/rankwise/collective": "fingerprint issue_order turn outside callers derived",
    "core/rankwise/store": "store_queues store_foreign store",
}
COMPARISONS = {"==": "!=", "<": "<=", ">": ">=", "is": "is not", "in": "not in"}
COMPARISONS |= {other: operator for operator, other in COMPARISONS.items()}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "*", "**": "*", "<<": ">>", ">>": "<<", "&": "|"}
ARITHMETIC |= {"|": "&", "^": "&"}
_OPERATOR = re.compile(rb"is\s+not|not\s+in|\b(?:is|in|and|or)\b|\*\*|//|<<|>>|[=!<>]=|[-+*/%<>&|^]")
#: How many are tried at once, and how much longer than without a mistake the tests may take.
_AT_ONCE = 2
_TIMES, _MORE_S = 4, 20


class Mutant(NamedTuple):
    """The bytes of a file that are to be replaced, and by what."""

    path: Path
    begin: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """Return the file with the mistake."""
        return source[: self.begin] + self.text.encode() + source[self.end :]

    def diff(self) -> str:
        """Return what it changes."""
        source = self.path.read_bytes()
        before, after = (text.decode().splitlines() for text in (source, self.apply(source)))
        return "\n".join(difflib.unified_diff(before, after, str(self.path), "mutant", n=1, lineterm=""))


class Source:
    """A file, and where the parts of its syntax tree lie in it."""

    def __init__(self, path: Path, text: bytes) -> None:
        self.path, self.text = path, text
        self._lines = [0, *(match.end() for match in re.finditer(b"\n", text))]

    def begin(self, node: Any) -> int:
        return int(self._lines[node.lineno - 1] + node.col_offset)

    def end(self, node: Any) -> int:
        return int(self._lines[node.end_lineno - 1] + node.end_col_offset)

    def replaced(self, node: ast.AST, text: str) -> Mutant:
        """Return the mutant that has a text in the place of a part, of which `{}` stands for that."""
        begin, end = self.begin(node), self.end(node)
        return Mutant(self.path, begin, end, text.replace("{}", self.text[begin:end].decode()))

    def operator(self, left: ast.AST, right: ast.AST, others: dict[str, str]) -> Iterator[Mutant]:
        """Change the operator that stands between two operands, if it has another."""
        begin = self.end(left)
        match = _OPERATOR.search(self.text, begin, self.begin(right))
        if match and (other := others.get(" ".join(match.group().decode().split()))):
            yield Mutant(self.path, match.start(), match.end(), other)

    def keyword(self, node: ast.keyword) -> Mutant:
        """Leave an argument out, with the comma behind it."""
        comma = re.compile(rb"\s*,\s*").match(self.text, self.end(node))
        return Mutant(self.path, self.begin(node), comma.end() if comma else self.end(node), "")


def _changes(source: Source, node: ast.AST) -> Iterator[Mutant]:
    """Change one part itself, not what it consists of."""
    match node:
        case ast.Compare():
            for left, right in pairwise([node.left, *node.comparators]):
                yield from source.operator(left, right, COMPARISONS)
        case ast.BoolOp():
            for left, right in pairwise(node.values):
                yield from source.operator(left, right, {"and": "or", "or": "and"})
        case ast.BinOp():
            yield from source.operator(node.left, node.right, ARITHMETIC)
        case ast.AugAssign():
            yield from source.operator(node.target, node.value, ARITHMETIC)
            yield source.replaced(node, "pass")
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield Mutant(source.path, source.begin(node), source.begin(node.operand), "")
        case ast.Constant(value=bool()):
            yield source.replaced(node, str(not node.value))
        case ast.Constant(value=int() | float()):
            yield source.replaced(node, str(node.value + 1))
        case ast.If() | ast.While() | ast.IfExp():
            yield source.replaced(node.test, "(not ({}))")
            left_early = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.Return)]
            yield from (source.replaced(each, "pass") for each in left_early)
        case ast.comprehension():
            yield from (source.replaced(test, "(not ({}))") for test in node.ifs)
        case ast.Call():
            yield from map(source.keyword, node.keywords)
        case ast.Assign() if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            yield source.replaced(node, "pass")
        case ast.Raise() | ast.Delete() | ast.Break() | ast.Continue() | ast.Expr(ast.Call()):
            yield source.replaced(node, "pass")


def _within(source: Source, node: ast.AST) -> Iterator[Mutant]:
    """Change a part or what it consists of, but not what is said of types, nor how something is shown."""
    parts = list(ast.iter_child_nodes(node))
    match node:
        case ast.FunctionDef(name="__repr__") | ast.If(test=ast.Name("TYPE_CHECKING")):
            return
        case ast.Assign(targets=[ast.Name("__all__" | "__slots__")]) | ast.AnnAssign(value=None):
            return
        case ast.FunctionDef():
            parts = [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]
        case ast.AnnAssign(value=value):
            parts = [value]
    yield from _changes(source, node)
    for part in parts:
        yield from _within(source, part)


def mutants(room: Path) -> list[Mutant]:
    """Return the mutants of a file or folder: those that are code."""
    found = []
    for path in sorted(room.rglob("*.py")) if room.is_dir() else [room]:
        source = Source(path, path.read_bytes())
        for mutant in dict.fromkeys(_within(source, ast.parse(source.text))):
            with suppress(SyntaxError):
                compile(mutant.apply(source.text), "mutant", "exec")
                found.append(mutant)
    return found


def tests_of(room: Path) -> list[str]:
    """Return where a room's tests are."""
    name = str(room.with_suffix(""))
    if rows := [row for row in TESTS if f"{name}/".startswith(f"{row}/")]:
        return [f"tests/core/test_{each}.py" for each in TESTS[max(rows, key=len)].split()]
    if room.parts[0] == "plugins":
        return [f"tests/plugins/{room.parts[1]}"]
    return sorted(map(str, Path("tests/core").glob(f"test_{Path(name).parts[2]}*.py")))


class Copy:
    """A copy of the tree in which tests run."""

    def __init__(self, root: Path, tests: list[str]) -> None:
        self._root = root
        shutil.copytree(".", root, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__", "dist"))
        self._command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        packages = [path.parent for path in root.glob("plugins/*/src/*/__init__.py") if find_spec(path.parent.name)]
        paths = [root, root / "core", *(path.parent for path in packages)]  # before what is installed
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}

    def end_with(self, mutant: Mutant, limit_s: float) -> str:
        """Tell how the tests end with a mutant."""
        path = self._root / mutant.path
        source = path.read_bytes()
        path.write_bytes(mutant.apply(source))
        Path(cache_from_source(str(path))).unlink(missing_ok=True)  # it may have the same size, and the same second
        try:
            return self.end(limit_s)
        finally:
            path.write_bytes(source)

    def end(self, limit_s: float | None = None) -> str:
        """Tell how the tests end: a mutant has survived, or has been killed, or they have timed out."""
        process = subprocess.Popen(
            self._command,
            cwd=self._root,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return "killed" if process.wait(limit_s) else "survived"
        except subprocess.TimeoutExpired:
            return "timed out"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what they have started
            process.wait()


def _ends(copies: list[Copy], chosen: list[Mutant], limit_s: float) -> Iterator[str]:
    def run(mutant: Mutant) -> str:
        copy = copies.pop()
        try:
            return copy.end_with(mutant, limit_s)
        finally:
            copies.append(copy)

    with ThreadPoolExecutor(len(copies)) as threads:
        yield from threads.map(run, chosen)


def main() -> int:
    """Return 1 if there are survivors, and 2 if the tests fail by themselves."""
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("room", type=Path, help="a file or folder, such as core/rankwise/store")
    parser.add_argument("--limit", type=int, default=40, metavar="N", help="so many mutants (40)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="chooses which (0)")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="in the place of the room's")
    given = parser.parse_args()
    every = mutants(given.room)
    chosen = random.Random(given.seed).sample(every, min(given.limit, len(every)))
    tests = given.tests or tests_of(given.room)
    print(f"{len(chosen)} of {len(every)} mutants of {given.room}; tests: {' '.join(tests)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        return _try(chosen, [Copy(Path(folder, str(number)), tests) for number in range(_AT_ONCE)])


def _try(chosen: list[Mutant], copies: list[Copy]) -> int:
    began = time.monotonic()
    if copies[0].end() != "survived":
        print("the tests fail without a mutant", file=sys.stderr)
        return 2
    limit_s = _TIMES * (time.monotonic() - began) + _MORE_S
    count: Counter[str] = Counter()
    for mutant, end in zip(chosen, _ends(copies, chosen, limit_s), strict=True):
        count[end] += 1
        if end == "survived":
            print(mutant.diff(), flush=True)
    print(f"{count['killed']} killed, {count['timed out']} timed out, {count['survived']} survived")
    return int(count["survived"] > 0)


if __name__ == "__main__":
    sys.exit(main())
