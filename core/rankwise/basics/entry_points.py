"""Entry points: what the installed distributions say that they bring.

`importlib.metadata` knows every way in which a distribution can be installed, but it loads `email`, `zipfile` and
`csv`, which costs a rank more time than making its group. So what is looked for is looked for first where pip puts
distributions (`declared`), and taken if there is exactly one. Everything else is told by `importlib.metadata`
(`installed`): none, several, one that cannot be loaded, and the list of all. A distribution whose metadata cannot be
read brings nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from operator import attrgetter
from time import time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from rankwise.basics.loading import loading
from rankwise.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

#: What another distribution of this project brings for a name that the core has, and programs know.
PARTS_GROUP = "rankwise.parts"
_LONGEST = 1000
#: How all groups of this project begin.
_OURS = b"[rankwise."
#: A folder that has changed within so many nanoseconds may change again without a later time.
_SETTLED_NS = 2_000_000_000
#: When each folder had changed last, and what was declared there then.
_kept: dict[str, tuple[int, list[tuple[str, str, str, str]]]] = {}


class Point(NamedTuple):
    """An entry point: a backend's name, where its plugin is, and the distribution that brings it.

    Attributes:
        value: The module, and perhaps an attribute of it: "module:attribute".
        requires: What the distribution requires of rankwise, as it says it.
    """

    name: str
    value: str
    distribution: str
    version: str
    requires: str = ""

    @property
    def owner(self) -> str:
        """The distribution with its version."""
        return f"{self.distribution} {self.version}".strip()


def installed(group: str, name: str = "") -> list[Point]:
    """Return the entry points of a group, afresh each time: a plugin may be installed while the process runs.

    With `name`, distributions are left out that have nothing of this name.
    """
    from importlib import metadata

    found: dict[str, list[Point]] = {}
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
            if group not in text or name not in text:
                continue  # as with nearly all distributions
            owner = distribution.metadata["Name"]
            if owner is None:  # its metadata is damaged; what it brings is there all the same
                found[f"without a name {len(found)}"] = list(
                    _points("a distribution without a name", distribution, group)
                )
            elif _normal(owner) not in found:  # what comes first on the path is what is imported
                found[_normal(owner)] = list(_points(owner, metadata.distribution(owner), group))
        except Exception:  # whatever is wrong with one distribution, the others are there
            continue
    return [point for several in found.values() for point in several]


def declared(group: str) -> Iterator[tuple[str, str]]:
    """Yield the name and value of each entry point of a group, of the distributions in the folders of `sys.path`."""
    return ((name, value) for name, value, _ in declared_by(group))


def declared_by(group: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name and value of each entry point likewise, and the distribution and version that bring it."""
    for folder in dict.fromkeys(map(os.path.abspath, sys.path)):
        for section, *point in _declared_in(folder):
            if section == f"[{group}]":
                yield tuple(point)  # type: ignore[misc]


def _declared_in(folder: str) -> list[tuple[str, str, str, str]]:
    """Return section, name, value and owner of what is declared for us in a folder, which is read if it changes."""
    try:
        changed_ns = os.stat(folder).st_mtime_ns
        kept = _kept.get(folder)
        if kept is not None and kept[0] == changed_ns:
            return kept[1]
        names = os.listdir(folder)
    except OSError:
        return []  # a zip file, or nothing at all
    found = []
    for name in names:
        if name.endswith((".dist-info", ".egg-info")) and (lines := _ours(f"{folder}/{name}/entry_points.txt")):
            owner = " ".join(name.rpartition(".")[0].split("-")[:2]).replace("_", "-")
            found += [(*point, owner) for point in _in_sections(lines)]
    if time_ns() - changed_ns > _SETTLED_NS:
        _kept[folder] = changed_ns, found
    return found


def _ours(path: str) -> list[str]:
    """Return the lines of a file with entry points if some are for us."""
    try:
        # opens: nothing, who can write there can run any code in the process
        with open(path, "rb", buffering=0) as file:
            text = file.read()
        return text.decode().splitlines() if _OURS in text else []  # as with nearly all distributions
    except (OSError, UnicodeDecodeError):
        return []


def _in_sections(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line
        elif "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield section, name.strip(), value.partition("[")[0].strip()  # an extra, in an old notation


def same(one: str, other: str) -> bool:
    """Tell whether two names of distributions are spelled alike, as pip takes them."""
    return _normal(one) == _normal(other)


def load(value: str) -> Any:
    """Import what an entry point stands for."""
    module, _, attribute = value.partition(":")
    with loading():
        loaded = import_module(module.strip())
    return attrgetter(attribute.strip())(loaded) if attribute else loaded


def named(group: str, name: str) -> dict[str, str]:
    """Return what a name stands for in a group, with the distribution that brings it; several where it is claimed."""
    found = {value: owner for each, value, owner in declared_by(group) if each == name}
    if len(found) == 1:
        return found
    return {point.value: point.owner for point in installed(group, name) if point.name == name}


@cache
def part(name: str, distribution: str) -> Any:
    """Return what a distribution brings for a name of the core's; what is not there is looked for each time.

    Raises:
        PluginError: It is not installed.
    """
    found = named(PARTS_GROUP, name)
    if not found:
        raise not_installed(distribution)
    return load(next(iter(found)))


def not_installed(distribution: str) -> PluginError:
    """Return the error of what a distribution would bring that is not there."""
    remedy = f"pip install {distribution}"
    return PluginError(f"{distribution} is not installed: {remedy}", remedy)


def one_line(text: str) -> str:
    """Return a text of a plugin's in one line of bounded length, with what a terminal would obey made visible."""
    joined = " ".join(text[: 4 * _LONGEST].split())
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}..."


def _points(name: str, distribution: Distribution, group: str) -> Iterator[Point]:
    version = str(distribution.version)
    requires = ", ".join(r for r in distribution.requires or () if re.match(r"rankwise\b(?![-_.])", r))
    for section, key, value in _in_sections((distribution.read_text("entry_points.txt") or "").splitlines()):
        if section == f"[{group}]":
            yield Point(key, value, one_line(name), one_line(version), one_line(requires))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
