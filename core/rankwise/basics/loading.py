"""Loading: names that are loaded when they are first asked for, and modules without the garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rankwise.basics.tracebacks import shorten

#: What a program that begins a group asks for next: of each package the names of some modules.
_next: dict[str, Mapping[str, Sequence[str]]] = {}


@contextmanager
def loading() -> Iterator[None]:
    """Load modules in here, and do nothing else: meanwhile nothing is collected in any thread."""
    if not gc.isenabled():  # as the program wants it, or another thread that is loading
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def later(
    package: str, places: Mapping[str, Sequence[str]], modules: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that loads names when they are first asked for, as few need all of them.

    `places` are the names that each module has, `modules` what modules themselves are called.
    """
    module_of = {name: module for module, names in places.items() for name in names}

    def find(name: str) -> Any:
        try:
            with loading():
                if modules and name in modules:
                    found: Any = import_module(modules[name])
                elif name in module_of:
                    found = getattr(import_module(module_of[name]), name)
                else:
                    raise AttributeError(f"module {package!r} has no attribute {name!r}")
        except KeyboardInterrupt as error:
            shorten(error)  # in which module it came is of no interest
            raise
        setattr(sys.modules[package], name, found)
        return found

    return find


def needs_next(package: str, places: Mapping[str, Sequence[str]]) -> None:
    """Have ranks load some names of a package as they begin a group, so that no call has to; see `later`."""
    _next[package] = places


def load_next() -> None:
    """Load them."""
    with loading():
        for package, places in _next.items():
            known = vars(sys.modules[package])
            for module, names in places.items():
                found = import_module(module)
                for name in names:
                    known.setdefault(name, getattr(found, name))
