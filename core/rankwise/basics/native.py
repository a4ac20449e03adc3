"""`rankwise-native`: compiled parts that are used if they are installed, and done without if they are not."""

from __future__ import annotations

import importlib
import os
from functools import cache
from types import ModuleType

from rankwise.basics.version import __version__, series

#: The version of what this package expects of the compiled one, which says in C for which it was built. It is raised
#: with every change to what either calls of the other: signatures, their results, attributes that C looks at. Two
#: changes may raise it to the same; in a checkout the package itself refuses what was built of other sources.
API_VERSION = 35
#: Turns the compiled parts off, for this process alone: ranks with and without them work together.
VARIABLE = "RANKWISE_NATIVE"
_INSTALL = "pip install rankwise-native"
#: Not from the cache, where pip keeps what it could build before a compiler was there.
_RENEW = "pip install --upgrade --force-reinstall --no-cache-dir rankwise-native"
_ON, _OFF = ("", "on", "1"), ("off", "0")


def module() -> ModuleType | None:
    """Return the compiled package, or None."""
    return _look()[0]


def state() -> tuple[bool, str]:
    """Return whether compiled parts are in use, and which, or why not."""
    found, text, _ = _look()
    return found is not None, text


def remedy() -> str:
    """Return the command that brings them into use; nothing where they are, or are not wanted."""
    return _look()[2]


@cache
def _look() -> tuple[ModuleType | None, str, str]:
    """Look once: what a process has begun with, it goes on with."""
    wish = os.environ.get(VARIABLE, "").strip().lower()
    if wish in _OFF:
        return None, f"rankwise-native is turned off by {VARIABLE}={wish}", ""
    if wish not in _ON:
        raise ValueError(f"{VARIABLE} is {wish!r}, but must be on or off")
    try:
        found = importlib.import_module("rankwise_native")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "rankwise_native":
            return None, "rankwise-native is not installed", _INSTALL
        return None, f"rankwise-native cannot be loaded: {error}", _RENEW
    theirs = str(getattr(found, "__version__", "of no version"))
    if series(theirs) != series(__version__):
        return None, f"rankwise-native {theirs} has another MAJOR.MINOR than rankwise {__version__}", _RENEW
    built_for = getattr(found, "API_VERSION", None)
    if built_for != API_VERSION:
        text = f"rankwise-native {theirs} is built for version {built_for} of what it shares with rankwise"
        return None, f"{text}, and this is version {API_VERSION}", _RENEW
    return found, f"rankwise-native {theirs}", ""
