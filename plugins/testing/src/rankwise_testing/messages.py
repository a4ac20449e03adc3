"""What travels between the harness and its processes: functions by name, results, and errors with their traceback.

Both ends are processes of one user on one host, connected by a socket that only they can open, and each has proved to
the other that it knows the key of this run. That is why this, unlike all else in the package, may pickle.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankwise.kits import signals

#: Makes a process write the stacks of all its threads. MPI libraries and launchers use the other user signal.
STACKS_SIGNAL = next(iter(signals("SIGUSR2")), None)


class RemoteTraceback(Exception):
    """The traceback of an error in another process, as text; it stands as the error's cause."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


@dataclass(frozen=True)
class Setup:
    """What a process is told once it has connected.

    Attributes:
        sys_path: Where to look for modules, as in the parent.
        python_path: The parent's PYTHONPATH, for what the process starts itself; None if it has none.
        environ: Variables of this rank alone.
    """

    sys_path: list[str]
    python_path: str | None
    environ: dict[str, str]


@dataclass(frozen=True)
class FunctionName:
    """Where to find a function: in a module, which is imported by name or else from its file."""

    module: str
    qualified: str
    file: str | None

    @classmethod
    def of(cls, function: Callable[..., Any]) -> FunctionName:
        """Return the name of a function.

        Raises:
            ValueError: Another process could not find it: it is a lambda, or defined within a function.
        """
        module, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", "<unnamed>")
        if module is None or "<" in qualified:
            raise ValueError(f"{function!r} cannot be found by another process; use a function at a module's top level")
        file = getattr(sys.modules.get(module), "__file__", None)
        return cls(module, qualified, None if file is None else str(Path(file).absolute()))

    def find(self) -> Callable[..., Any]:
        """Import the module if need be, and return the function."""
        found: Any = sys.modules.get(self.module) if self.module != "__main__" else None
        if found is None:
            found = self._by_name() or self._from_file()
        for name in self.qualified.split("."):
            found = getattr(found, name)
        function: Callable[..., Any] = found
        return function

    def _by_name(self) -> Any:
        """Import by name, unless that would import another file: test modules need not be where their name says."""
        if self.module == "__main__":
            return None
        try:
            spec = importlib.util.find_spec(self.module)
        except ModuleNotFoundError:
            return None
        if spec is None or (self.file is not None and spec.origin != self.file):
            return None
        return importlib.import_module(self.module)

    def _from_file(self) -> Any:
        if self.file is None:
            raise ModuleNotFoundError(f"no module named {self.module!r}")
        # Under another name a main program does not run when it is imported.
        name = "__mp_main__" if self.module == "__main__" else self.module
        spec = importlib.util.spec_from_file_location(name, self.file)
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"{self.file} is no module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module  # what is pickled by reference refers to this name
        spec.loader.exec_module(module)
        return module


@dataclass(frozen=True)
class Task:
    """A function to call. The arguments are pickled apart, as they may need the function's module to be imported."""

    function: FunctionName
    pickled_args: bytes

    @classmethod
    def of(cls, function: Callable[..., Any], args: tuple[Any, ...]) -> Task:
        """Make a task of a function and its arguments."""
        return cls(FunctionName.of(function), pickle.dumps(args))

    def run(self) -> Any:
        """Call the function."""
        function = self.function.find()
        return function(*pickle.loads(self.pickled_args))


@dataclass(frozen=True)
class Outcome:
    """What became of a task on one rank: a pickled result, or a pickled error and its traceback."""

    pickled: bytes
    trace: str | None = None

    def error(self) -> BaseException | None:
        """Return the error, with the traceback as its cause; None if there is none."""
        if self.trace is None:
            return None
        error: BaseException = pickle.loads(self.pickled)
        error.__cause__ = RemoteTraceback(self.trace)
        return error

    def result(self) -> Any:
        """Return the result."""
        return pickle.loads(self.pickled)


def succeeded(result: Any) -> Outcome:
    """Return the outcome of a task that returned `result`."""
    try:
        return Outcome(pickle.dumps(result))
    except Exception as error:  # pickling runs code of the object's own
        return failed(TypeError(f"the result, a {type(result).__qualname__}, cannot be brought home: {error}"))


def failed(error: BaseException) -> Outcome:
    """Return the outcome of a task that raised `error`; one that cannot travel becomes a RuntimeError in its words."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:  # exceptions whose constructor takes other arguments than `args` are common
        pickled = pickle.dumps(RuntimeError(f"{type(error).__qualname__}: {error}"))
    return Outcome(pickled, trace)
