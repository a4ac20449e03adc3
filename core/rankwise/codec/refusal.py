"""Why an object does not travel: where in it the trouble is, and what to do."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from rankwise.basics.words import with_article

__all__ = ["Refused", "cannot_travel"]

_SHOWN = 8
_BASES = (str, bytes, int, float, complex, dict, list, set, frozenset)


class Refused(Exception):
    """A value cannot be encoded; on its way up each container adds the place where it holds the value."""

    def __init__(self, kind: type[TypeError] | type[ValueError], reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.places: list[str] = []

    def error(self) -> Exception:
        """Return the error to show to the caller."""
        places = self.places[::-1]
        if len(places) > _SHOWN:
            places[_SHOWN:] = ["..."]
        return self.kind(f"obj{''.join(places)} {self.reason}; only pickle=True on all ranks can send it as it is")


def cannot_travel(obj: Any) -> Refused:
    """Return the refusal of a value because of its type."""
    kind = type(obj)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return Refused(TypeError, f"is {with_article(name)}, which does not travel{_advice(obj, kind)}")


def _advice(obj: Any, kind: type) -> str:
    if kind.__module__.partition(".")[0] == "cupy":
        return " among objects: use the collectives for arrays, or send its .get()"
    if isinstance(obj, enum.Enum):
        return ": send its .name or .value"
    if isinstance(obj, np.ndarray):
        return ": send numpy.asarray(...) of it"
    if isinstance(obj, memoryview):
        return ": send bytes(...) of it"
    if isinstance(obj, tuple):
        return ": send tuple(...) of it, or make the class a dataclass"
    if hasattr(kind, "__dataclass_fields__"):
        return ": put @dataclass on this subclass too"
    base = next((base for base in _BASES if isinstance(obj, base)), None)
    return "" if base is None else f": send {base.__name__}(...) of it"
