"""Whose frames are not the program's: those of this package, and of wrappers around it that have said so."""

from __future__ import annotations

import os
import sys

from rankwise.basics.tracebacks import shorten

__all__ = ["is_skipped", "known_inside", "known_outside", "skip_callers", "skipped"]

#: The files, and the folders, each with the separator. Recorders share the list itself, and see what is added later.
skipped = [os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep]
#: Files met so far that are the program's, and that are not: looking one up takes a fraction of comparing the path.
known_outside: set[str] = set()
known_inside: set[str] = set()


def skip_callers(*modules: str) -> None:
    """Make errors and the flight recorder name the line that calls these modules, instead of a line in them.

    For wrappers around rankwise, whose users look for their own lines. It holds for the process, from now on, and costs
    nothing in calls that come from elsewhere. A call that no other frame has led to, as one from a thread that was not
    started in Python, keeps the outermost line.

    Args:
        modules: Names of modules; a package stands for all that is in it.

    Raises:
        ModuleNotFoundError: There is no such module.
        ValueError: It has no file.

    Examples:
        >>> dist.skip_callers("json")
    """
    try:
        found = [path for module in modules for path in _paths(module)]
        skipped.extend(path for path in found if path not in skipped)
        known_outside.clear()  # those inside stay there
    except BaseException as error:
        shorten(error)
        raise


def is_skipped(file: str) -> bool:
    """Tell whether a frame of a file is not the program's."""
    if file in known_inside:
        return True
    is_inside = file.startswith(tuple(skipped))
    (known_inside if is_inside else known_outside).add(file)
    return is_inside


def _paths(name: str) -> list[str]:
    from importlib.util import find_spec

    module = sys.modules.get(name)
    spec = find_spec(name) if module is None else getattr(module, "__spec__", None)
    if module is None and spec is None:
        raise ModuleNotFoundError(f"skip_callers: there is no module {name!r}", name=name)
    folders = getattr(module, "__path__", None) or (spec and spec.submodule_search_locations)
    if folders:
        return [os.path.abspath(folder) + os.sep for folder in folders]
    file = getattr(module, "__file__", None) or (spec and spec.has_location and spec.origin)
    if not file:
        raise ValueError(f"skip_callers: module {name!r} has no file")
    return [file]
