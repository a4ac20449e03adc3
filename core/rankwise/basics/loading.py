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


# Names of a package that are loaded when they are first asked for, as few programs need all of them


def later(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: Its `__name__`.
        places: For each name the module of rankwise where it is, and after a colon what it is called there; without a
            colon it is the module itself.
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = places[name].partition(":")
        found: Any = import_module(f"rankwise.{module}")
        if attribute:
            found = getattr(found, attribute)
        setattr(sys.modules[package], name, found)
        return found

    return find
