"""Mistakes that are planted in code, one at a time, and what becomes of them.

A mutant differs from the code in one place: another comparison, operator or number, `and` for `or`, a condition turned
round, a statement, an early return or a keyword argument that is missing.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import cache_from_source
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

COMPARISONS = {"==": "!=", "<": "<=", ">": ">=", "is": "is not", "in": "not in"}
COMPARISONS |= {other: operator for operator, other in COMPARISONS.items()}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "*", "**": "*", "<<": ">>", ">>": "<<", "&": "|"}
ARITHMETIC |= {"|": "&", "^": "&"}
_OPERATOR = re.compile(rb"is\s+not|not\s+in|\b(?:is|in|and|or)\b|\*\*|//|<<|>>|[=!<>]=|[-+*/%<>&|^]")
#: How much longer than without a mistake the tests may take.
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
        case ast.Constant(value=int() | float() as number):
            yield source.replaced(node, str(number + 1))
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
        case ast.AnnAssign(value=ast.expr() as value):
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
                ast.parse(mutant.apply(source.text))
                found.append(mutant)
    return found


class Trial:
    """A place in which tests run on code that may be changed.

    Args:
        root: What the paths of mutants are relative to.
        command: What runs the tests; its status is 0 if they pass.
        environment: The variables that it gets.
    """

    def __init__(self, root: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._root, self._command, self._environment = root, command, environment

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


def _ends(trials: list[Trial], chosen: list[Mutant], limit_s: float) -> Iterator[str]:
    def run(mutant: Mutant) -> str:
        trial = trials.pop()
        try:
            return trial.end_with(mutant, limit_s)
        finally:
            trials.append(trial)

    with ThreadPoolExecutor(len(trials)) as threads:
        yield from threads.map(run, chosen)


def try_all(chosen: list[Mutant], trials: list[Trial]) -> Counter[str] | None:
    """Try mutants, print those that survive, and return how many ended how; None if the tests fail without one."""
    began = time.monotonic()
    if trials[0].end() != "survived":
        return None
    limit_s = _TIMES * (time.monotonic() - began) + _MORE_S
    count: Counter[str] = Counter()
    for mutant, end in zip(chosen, _ends(trials, chosen, limit_s), strict=True):
        count[end] += 1
        if end == "survived":
            print(mutant.diff(), flush=True)
    return count
