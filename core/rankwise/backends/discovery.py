"""Where plugins are found: in what the installed distributions say of themselves.

`importlib.metadata` knows every way in which a distribution can be installed, but it loads `email`, `zipfile` and
`csv`, which costs a rank more time than making its group. So the backend of a name is looked for first where pip puts
distributions, and taken if there is exactly one. Everything else is told by `importlib.metadata`: none, several, one
that cannot be loaded, and the list of all. A distribution whose metadata cannot be read brings no backend.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rankwise.basics.interrupts import is_surely_a_handlers

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = [
    "ENTRY_POINT_GROUP",
    "PluginFault",
    "Point",
    "declared",
    "described",
    "installed",
    "load",
    "names_seen",
    "one_line",
    "points_of",
    "quickly",
    "run_plugin",
    "same",
]

ENTRY_POINT_GROUP = "rankwise.backends"

#: The names that were come across in this process, for messages that are not worth another look.
names_seen: set[str] = set()


class Point(NamedTuple):
    """An entry point: a backend's name, where its plugin is, and the distribution that brings it.

    Attributes:
        name: The backend's name.
        value: The module, and perhaps an attribute of it: "module:attribute".
        distribution: The distribution's name.
        version: Its version.
        requires: What it requires of rankwise, as it says it.
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


def installed(group: str = ENTRY_POINT_GROUP) -> list[Point]:
    """Return the entry points of a group, afresh each time: a plugin may be installed while the process runs."""
    from importlib import metadata

    found: dict[str, list[Point]] = {}
    for distribution in metadata.distributions():
        try:
            if group not in (distribution.read_text("entry_points.txt") or ""):
                continue  # as with nearly all distributions
            name = distribution.metadata["Name"]
            if name is None:  # its metadata is damaged; what it brings is there all the same
                found[f"without a name {len(found)}"] = list(
                    _points("a distribution without a name", distribution, group)
                )
            elif _normal(name) not in found:  # what comes first on the path is what is imported
                found[_normal(name)] = list(_points(name, metadata.distribution(name), group))
        except Exception:  # whatever is wrong with one distribution, the others are there
            continue
    points = [point for several in found.values() for point in several]
    if group == ENTRY_POINT_GROUP:
        names_seen.update(point.name for point in points)
    return points


def points_of(name: str) -> list[Point]:
    """Return the installed entry points of a name."""
    return [point for point in installed() if point.name == name]


def same(one: str, other: str) -> bool:
    """Tell whether two names of distributions are spelled alike, as pip takes them."""
    return _normal(one) == _normal(other)


def quickly(name: str) -> str | None:
    """Return what the only entry point of a name stands for, or None if it takes more than a quick look to tell."""
    points = list(declared(ENTRY_POINT_GROUP))
    names_seen.update(found for found, _ in points)
    values = [value for found, value in points if found == name]
    return values[0] if len(values) == 1 else None


def load(value: str) -> Any:
    """Import what an entry point stands for."""
    module, _, attribute = value.partition(":")
    loaded = import_module(module.strip())
    return attrgetter(attribute.strip())(loaded) if attribute else loaded


def _points(name: str, distribution: Distribution, group: str) -> Iterator[Point]:
    version = str(distribution.version)
    requires = ", ".join(r for r in distribution.requires or () if re.match(r"rankwise\b(?![-_.])", r))
    for key, value in _in_section((distribution.read_text("entry_points.txt") or "").splitlines(), group):
        yield Point(key, value, one_line(name), one_line(version), one_line(requires))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(group: str) -> Iterator[tuple[str, str]]:
    """Yield the name and value of each entry point of a group, of the distributions in the folders of `sys.path`."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:
            continue  # a zip file, or nothing at all
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                yield from _declared_in(os.path.join(folder, name, "entry_points.txt"), group)


def _declared_in(path: str, group: str) -> Iterator[tuple[str, str]]:
    try:
        with open(path, "rb", buffering=0) as file:
            text = file.read()
        if group.encode() not in text:
            return  # as with nearly all distributions
        lines = text.decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    yield from _in_section(lines, group)


def _in_section(lines: list[str], group: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line
        elif section == f"[{group}]" and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()  # an extra of the distribution, in an old notation


# What plugins bring is run here: it may do whatever it likes, and what it does is told as that plugin's
#
# A plugin's module, its hook, its table and its probes are code of strangers, and run in programs which use another
# backend. So whatever they raise ends here, `SystemExit` included; Ctrl-C alone passes. What they say is told in one
# line, without anything that a terminal would obey.

_T = TypeVar("_T")
_LONGEST = 1000


class PluginFault(Exception):
    """What a plugin brings cannot be used; the message says why, and not yet which plugin it is."""


def run_plugin(what: str, function: Callable[[], _T]) -> _T:
    """Call what a plugin brings.

    Args:
        what: What is called, as the beginning of the sentence that tells of a failure.
        function: The call.

    Raises:
        PluginFault: It has raised anything but `KeyboardInterrupt`.
    """
    try:
        return function()
    except (KeyboardInterrupt, PluginFault):
        raise
    except BaseException as error:
        if is_surely_a_handlers(error):
            raise
        raise PluginFault(f"{what}: {described(error)}") from error


def described(error: BaseException) -> str:
    """Return an error's type and message in one line, even if the message itself cannot be had."""
    try:
        text = str.__str__(str(error))  # exactly a str, whatever it says it is
    except KeyboardInterrupt:
        raise
    except BaseException as another:
        text = f"its message cannot be had, because of {type(another).__name__}"
    if isinstance(error, SystemExit):
        return f"it would end the process (SystemExit: {one_line(text)})"
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def one_line(text: str) -> str:
    """Return a text of a plugin's in one line of bounded length, with what a terminal would obey made visible."""
    joined = " ".join(text[: 4 * _LONGEST].split())
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}..."
