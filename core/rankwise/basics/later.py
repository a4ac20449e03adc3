"""Names of a package that are loaded when they are first asked for, as few programs need all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["later"]


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
