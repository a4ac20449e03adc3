"""Loading: names that are loaded when they are first asked for, and modules without the garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
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


def later(package: str, names: Mapping[str, str], rooms: Iterable[str] = ()) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: Its `__name__`.
        names: For each module of rankwise what it has: "name, name as other, * as module", where `*` is the module.
        rooms: Modules of rankwise that are found by their own names.
    """
    places = {room: (room, "*") for room in rooms}
    for module, listed in names.items():
        for each in listed.split(", "):
            attribute, _, called = each.partition(" as ")
            places[called or attribute] = module, attribute

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = places[name]
        found: Any = import_module(f"rankwise.{module}")
        if attribute != "*":
            found = getattr(found, attribute)
        setattr(sys.modules[package], name, found)
        return found

    return find
