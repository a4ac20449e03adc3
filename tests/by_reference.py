"""What other processes of tests run, by reference: `call(function, ...)` calls a function of a file there.

As a program, `by_reference.py FILE FUNCTION ARGUMENTS`, it takes pickled arguments, and prints a pickled result last.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def call(
    function: Callable[..., object], *args: object, timeout_s: float, env: Mapping[str, str] | None = None, **more: Any
) -> Any:
    """Return what a function of a module returns in another process, which has to end well."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    done = subprocess.run(command(function, *args), env=env, timeout=timeout_s, check=False, **pipes, **more)
    assert done.returncode == 0, done.stderr
    return returned(done.stdout)


def command(function: Callable[..., object], *args: object) -> list[str]:
    """Return the command that calls a function of a module."""
    file = str(Path(inspect.getfile(function)).resolve())
    return [sys.executable, str(Path(__file__).resolve()), file, function.__name__, pickle.dumps(args).hex()]


def returned(output: str) -> object:
    """Return what the function has returned, by what its process has printed."""
    return pickle.loads(bytes.fromhex(output.splitlines()[-1]))


def say(result: object) -> None:
    """Print what `returned` reads, for a function that ends its process itself."""
    print(pickle.dumps(result).hex(), flush=True)


if __name__ == "__main__":
    file, name, given = sys.argv[1:]
    sys.path[0:1] = [str(Path(file).parent), str(ROOT)]
    found = getattr(importlib.import_module(Path(file).stem), name)(*pickle.loads(bytes.fromhex(given)))
    say(found)
