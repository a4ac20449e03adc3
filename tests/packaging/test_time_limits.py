"""No test has a time limit of its own in its body: limits are constants of its module, and these are stretched.

A limit is what a test waits for at most (`thread.join`, `subprocess.run`), or what something may have taken. A time-out
that a group, a store or a work is given is the subject of a test; so is a wait of less than a second: it ends in vain.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
#: What waits with `timeout=` or, with one argument, for as long as that says; what a duration is called.
WITH_A_KEYWORD = {"run", "check_output", "check_call", "communicate", "join", "wait", "result", "exception", "open"}
WITH_ONE_ARGUMENT = {"join", "wait", "result"}
DURATIONS = {"monotonic", "perf_counter", "took", "took_s", "elapsed", "elapsed_s", "lasted_s"}


def is_a_number(node: ast.expr, least: float = 0.0) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= least


def is_an_upper_bound(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[-1], (ast.Lt, ast.LtE))
        and is_a_number(node.comparators[-1])
    )


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def names_in(node: ast.AST) -> set[str]:
    return {getattr(each, "attr", getattr(each, "id", "")) for each in ast.walk(node)}


def limits(text: str) -> Iterator[int]:
    """Yield the lines that have limits of their own."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            given = [each.value for each in node.keywords if each.arg == "timeout" and name_of(node) in WITH_A_KEYWORD]
            if len(node.args) == 1 and name_of(node) in WITH_ONE_ARGUMENT:
                given += node.args
            if any(is_a_number(each, least=1.0) for each in given):
                yield node.lineno
        if is_an_upper_bound(node) and DURATIONS & names_in(node):
            yield node.lineno


#: A wait that is to end in vain.
IN_VAIN = {
    ("core/test_testing_harness.py", "pool.run(loiter, 2, str(tmp_path), timeout=1)"),
    ("plugins/elastic/test_parted.py", "job.members[0].process.wait(1.0)  # so long nobody reaches the other host"),
}


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_limits_are_constants_that_are_stretched(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = {number: text.splitlines()[number - 1].strip() for number in limits(text)}
    name = path.relative_to(TESTS).as_posix()
    assert not {number: line for number, line in found.items() if (name, line) not in IN_VAIN}


@pytest.mark.parametrize(
    "line", ["thread.join(5)", "rank.communicate(timeout=60)", "assert took < 2", "assert monotonic() - began < 1.5"]
)
def test_a_limit_of_its_own_is_found(line: str) -> None:
    assert list(limits(line)) == [1]


@pytest.mark.parametrize("line", ["thread.join(PATIENCE_S)", "store.wait(keys, timeout=0.1)", "assert took < LEEWAY_S"])
def test_a_constant_is_none(line: str) -> None:
    assert list(limits(line)) == []
