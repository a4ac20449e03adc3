"""`rankwise-native`: compiled parts that are used if they are installed, and done without if they are not."""

from __future__ import annotations

import importlib
import os
from functools import cache
from types import ModuleType

__all__ = ["API_VERSION", "MISSING", "REMEDY", "VARIABLE", "module", "state"]

#: The version of what this package expects of the compiled one.
API_VERSION = 1
#: Turns the compiled parts off, for this process alone: ranks with and without them work together.
VARIABLE = "RANKWISE_NATIVE"
#: What `state` says where there are none, and what installs them.
MISSING = "rankwise-native is not installed"
REMEDY = "pip install rankwise-native"

_ON, _OFF = ("", "on", "1"), ("off", "0")


def module() -> ModuleType | None:
    """Return the compiled package, or None."""
    return _look()[0]


def state() -> tuple[bool, str]:
    """Return whether compiled parts are in use, and which, or why not."""
    found, text = _look()
    return found is not None, text


@cache
def _look() -> tuple[ModuleType | None, str]:
    """Look once: what a process has begun with, it goes on with."""
    wish = os.environ.get(VARIABLE, "").strip().lower()
    if wish in _OFF:
        return None, f"rankwise-native is turned off by {VARIABLE}={wish}"
    if wish not in _ON:
        raise ValueError(f"{VARIABLE} is {wish!r}, but must be on or off")
    try:
        found = importlib.import_module("rankwise_native")
    except ModuleNotFoundError as error:
        if error.name != "rankwise_native":
            return None, f"rankwise-native cannot be loaded: {error}"
        return None, MISSING
    except ImportError as error:
        return None, f"rankwise-native cannot be loaded: {error}"
    if found.API_VERSION != API_VERSION:
        return None, f"rankwise-native {found.__version__} does not fit this version of rankwise"
    return found, f"rankwise-native {found.__version__}"
