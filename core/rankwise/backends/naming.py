"""The names of backends: lower-case letters, digits and underscores, as they are typed, listed and made attributes."""

from __future__ import annotations

import re

__all__ = ["UNDEFINED", "not_a_name"]

#: The name of no backend, as torch has it.
UNDEFINED = "undefined"

_TAKEN = {"tcp": "torch has retired it", UNDEFINED: "it stands for no backend"}


def not_a_name(name: object) -> str:
    """Return why something cannot be the name of a backend; nothing if it can."""
    if not isinstance(name, str):
        return f"a name is a string, not {name!r}"
    if name in _TAKEN:
        return f"{name!r} is reserved: {_TAKEN[name]}"
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name):
        return ""
    normal = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    could = f", such as {normal!r}" if re.fullmatch(r"[a-z_][a-z0-9_]*", normal) and normal not in _TAKEN else ""
    return f"a name has lower-case letters, digits and underscores only{could}"
