"""Dataclasses by name: found without importing anything, and built without running any of their code."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, TypeVar

from rankwise.errors import CodecError

__all__ = ["build", "field_names", "name_of", "register_dataclass"]

T = TypeVar("T", bound=type)

_registered: dict[str, type] = {}


def register_dataclass(cls: T) -> T:
    """Let a dataclass travel that cannot be found by its name, such as one made inside a function; a decorator."""
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls!r} is not a dataclass")
    _registered[name_of(cls)] = cls
    return cls


def name_of(cls: type) -> str:
    """Return the name under which a class travels."""
    return f"{cls.__module__}:{cls.__qualname__}"


def field_names(cls: type) -> list[str]:
    """Return the names of a dataclass's fields."""
    return [field.name for field in dataclasses.fields(cls)]


def build(name: str, values: dict[str, Any]) -> Any:
    """Return an instance of the dataclass called `name`, with these fields.

    Raises:
        CodecError: There is no such dataclass in this process, or its fields are others.
    """
    cls = _registered.get(name) or _loaded(name)
    if cls is None:
        raise CodecError(f"no dataclass {name!r} is loaded here; import its module, or use register_dataclass")
    if sorted(field_names(cls)) != sorted(values):
        raise CodecError(f"the sender's dataclass {name!r} has other fields: {sorted(values)}")
    try:
        made = object.__new__(cls)
        for field, value in values.items():
            object.__setattr__(made, field, value)
    except (TypeError, AttributeError) as error:
        raise CodecError(f"dataclass {name!r} cannot be filled by its fields: {error}") from error
    return made


def _loaded(name: str) -> type | None:
    """Look a class up by dictionaries alone: attribute access could run code, and import what is not loaded."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        space = getattr(found, "__dict__", None) if found is not None else None
        found = space.get(part) if space is not None else None
    return found if isinstance(found, type) and "__dataclass_fields__" in vars(found) else None
