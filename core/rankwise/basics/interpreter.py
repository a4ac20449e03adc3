"""The interpreter that rankwise can be loaded into: the main one of its process, with Python's global lock."""

from __future__ import annotations

import sys
from importlib import import_module

__all__ = ["require_ours"]

_OTHER = (
    "rankwise cannot be loaded into a sub-interpreter, as NumPy cannot. Start ranks as processes (`rankwise run`, "
    "`rankwise.spawn`) or as threads of the main interpreter (`rankwise_local.local_world`); for mod_wsgi set "
    "`WSGIApplicationGroup %{GLOBAL}`"
)
_UNLOCKED = (
    "rankwise needs Python's global lock (GIL), which is off in this free-threaded Python. Turn it on: "
    "set PYTHON_GIL=1, or start `python -X gil=1`"
)


def require_ours() -> None:
    """Refuse an interpreter that rankwise cannot be loaded into, and say what to do."""
    if _is_other():
        raise ImportError(_OTHER)
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(_UNLOCKED)


def _is_other() -> bool:
    """Return whether this is not the main interpreter of its process, as far as this Python tells."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # since 3.13, and before
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() != interpreters.get_main())
    return False
