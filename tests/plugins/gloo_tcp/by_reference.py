"""What ranks of these tests run: `by_reference.py MODULE FUNCTION ARGUMENT...` prints what a function here returns."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["command"]


def command(function: Callable[..., object], *args: object) -> list[str]:
    """Return the command that calls a function of a module beside this one, with plain values."""
    return [sys.executable, str(Path(__file__)), function.__module__, function.__name__, *map(repr, args)]


if __name__ == "__main__":
    module, name, *values = sys.argv[1:]
    function = getattr(importlib.import_module(module.rpartition(".")[2]), name)
    print(repr(function(*map(ast.literal_eval, values))))
