"""Loading: names that are loaded when they are first asked for, and modules without the garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["later", "loading"]


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


def later(package: str, places: Mapping[str, tuple[str, str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that loads names when they are first asked for, as few need all of them.

    Args:
        package: Its `__name__`.
        places: For each name the module that has it, and what it is called there; "" is the module itself.
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = places[name]
        with loading():
            found: Any = import_module(module)
        if attribute:
            found = getattr(found, attribute)
        setattr(sys.modules[package], name, found)
        return found

    return find
