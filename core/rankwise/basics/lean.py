"""`NamedTuple` and `Protocol`, which type checkers take for those of `typing`, and which are made quickly.

`typing` compiles each annotation of each class as it makes it: 200 us for a tuple of five fields, where the tuple
itself takes 80, and 60 us for a protocol, which nothing asks for at run time. A rank makes some fifty such classes
before its first group.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "Protocol"]

if TYPE_CHECKING:
    from typing import NamedTuple, Protocol
else:

    class Protocol:
        """What only type checkers read."""

    class _Maker(type):
        """Makes a tuple with names out of the body of a class."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for key, value in body.items():
                if key != "__dict__":
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Maker):
        """As `typing.NamedTuple`, without generic ones."""
