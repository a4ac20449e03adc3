"""Errors go from process to process: each class, with all its attributes, by whatever carries objects."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pickle
import pkgutil
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from tests.threads import run_local

import rankwise as dist

PATIENCE_S = 60.0

#: What an argument of an error's class may be, by its annotation.
VALUES: dict[str, Any] = {
    "str": "what happened",
    "str | None": "SIGKILL",
    "int": 3,
    "tuple[int, ...]": (1, 2),
    "frozenset[str]": frozenset({"a process"}),
    "Mapping[int, BaseException]": {1: ValueError("theirs")},
    "Exception": ValueError("theirs"),
}

LEAVES = re.compile(r"[A-Z]\w*(Error|Exception)")

CARRIERS: dict[str, Callable[[Any], Any]] = {
    **{f"pickle {n}": lambda error, n=n: pickle.loads(pickle.dumps(error, n)) for n in range(6)},
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "cloudpickle": lambda error: cloudpickle.loads(cloudpickle.dumps(error)),
}


def modules() -> Iterator[str]:
    """Name the modules of all distributions here that define classes of errors."""
    for top in pkgutil.iter_modules():
        if not top.ispkg or top.name.partition("_")[0] != "rankwise":
            continue
        folder = Path(find_spec(top.name).submodule_search_locations[0])
        for path in folder.rglob("*.py"):
            if any(is_error(node) for node in ast.parse(path.read_text()).body):
                yield ".".join((top.name, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")


def is_error(node: ast.AST) -> bool:
    bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
    return any(base.endswith(("Error", "Exception")) for base in bases)


def classes() -> list[type[BaseException]]:
    """Return those of ours that reach a program; what is caught where it was raised is called otherwise."""
    found = set()
    for name in modules():
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and issubclass(value, Exception) and LEAVES.fullmatch(value.__name__):
                found.add(value)
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


CLASSES = classes()


def made(kind: type[BaseException]) -> BaseException:
    """Return an error of a class, with an attribute and a note of its own beside those that the class has."""
    error = kind(*arguments(kind))
    error.group = "a group"  # type: ignore[attr-defined]
    error.__notes__ = ["a note"]
    return error


def arguments(kind: type[BaseException]) -> list[Any]:
    parameters = inspect.signature(kind.__init__).parameters.values()
    named = [one for one in parameters if one.name != "self" and one.kind is one.POSITIONAL_OR_KEYWORD]
    return [value(one.annotation) for one in named] or ["what happened"]


def value(annotation: Any) -> Any:
    if annotation in VALUES:
        return VALUES[annotation]
    from rankwise_launch.config import ExitCode

    return {"ExitCode": ExitCode.NODE_LOST}[annotation]


def told(error: BaseException) -> Any:
    """Return all that an error says; errors within it have no equality of their own."""
    return type(error), str(error), repr(error), repr(sorted(vars(error).items()))


def test_all_classes_are_looked_at():
    assert set(vars(dist.errors)[name] for name in dist.errors.__all__) <= set(CLASSES)


@pytest.mark.parametrize("carrier", CARRIERS.values(), ids=CARRIERS)
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_carried_with_all_it_says(kind, carrier):
    error = made(kind)
    again = carrier(error)
    assert again is not error
    assert told(again) == told(error)
    assert told(carrier(again)) == told(error)


def raise_it(error: BaseException) -> None:
    raise error


def test_a_pool_of_processes_raises_what_its_worker_raised():
    errors = [made(kind) for kind in CLASSES]
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        raised = [pool.submit(raise_it, error).exception(timeout=PATIENCE_S) for error in errors]
    assert [told(error) for error in raised] == [told(error) for error in errors]


def gathered() -> list[Any]:
    everyones: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyones, [made(kind) for kind in CLASSES], pickle=True)
    return [told(error) for errors in everyones for error in errors]


def test_ranks_gather_their_errors():
    for everyones in run_local(2, gathered, timeout=PATIENCE_S):
        assert everyones == 2 * [told(made(kind)) for kind in CLASSES]
