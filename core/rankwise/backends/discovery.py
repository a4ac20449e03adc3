"""Where plugins are found: in what the installed distributions say of themselves.

`importlib.metadata` knows every way in which a distribution can be installed, but it loads `email`, `zipfile` and
`csv`, which costs a rank more time than making its group. So the backend of a name is looked for first where pip puts
distributions, and taken if there is exactly one. Everything else is told by `importlib.metadata`: none, several, one
that cannot be loaded, and the list of all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["ENTRY_POINT_GROUP", "distribution", "entry_points_of", "installed", "quickly"]

ENTRY_POINT_GROUP = "rankwise.backends"

_SECTION = f"[{ENTRY_POINT_GROUP}]"


def installed() -> Iterable[EntryPoint]:
    """Return the entry points of all backends, afresh each time: one may be installed while the process runs."""
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINT_GROUP)


def entry_points_of(name: str) -> list[EntryPoint]:
    """Return the installed entry points of a name; a distribution that is found twice on the path counts once."""
    found: dict[str, EntryPoint] = {}
    for point in installed():
        if point.name == name:
            found.setdefault(distribution(point), point)
    return list(found.values())


def distribution(point: EntryPoint) -> str:
    """Return the distribution that brings an entry point, with its version."""
    # `dist` is None only for entry points that were made by hand.
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def quickly(name: str) -> Any:
    """Return what the only entry point of a name stands for, or None if it takes more than a quick look to tell."""
    values = [value for found, value in _declared() if found == name]
    if len(values) != 1:
        return None
    module, _, attribute = values[0].partition(":")
    try:
        loaded = import_module(module)
        return attrgetter(attribute)(loaded) if attribute else loaded
    except Exception:
        return None  # whoever takes the long way meets it again, and tells it


def _declared() -> Iterator[tuple[str, str]]:
    """Yield the name and value of each entry point of the distributions in the folders of `sys.path`."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:
            continue  # a zip file, or nothing at all
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                yield from _declared_in(os.path.join(folder, name, "entry_points.txt"))


def _declared_in(path: str) -> Iterator[tuple[str, str]]:
    try:
        with open(path, "rb", buffering=0) as file:
            text = file.read()
        if ENTRY_POINT_GROUP.encode() not in text:
            return  # as with nearly all distributions
        lines = text.decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line
        elif section == _SECTION and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()
