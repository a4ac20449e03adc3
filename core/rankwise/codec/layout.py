"""The layout of an encoded object, and the limits that both ends keep.

::

    object    = MAGIC value
    value     = tag body, where the body follows from the tag:
    N T F       nothing: None, True, False
    i d c       8, 8, 16 bytes: an int of 64 bits, a float, a complex
    I s y Y     length, bytes: a wider int, a str in UTF-8, bytes, a bytearray
    l t e f     count, values: a list, tuple, set, frozenset
    m           count, keys and values in turn: a dict
    p q P Q     count, 8 bytes each: a list of floats, of ints; a tuple of floats, of ints
    A           number of dimensions (1 byte), dimensions, dtype (a value), memory in C order: an array
    D           length, signature of a dataclass, a value for each field
    X           code (1 byte), value: one of the types of `rankwise.codec.values`

Lengths, counts and dimensions are unsigned and 8 bytes wide; all numbers are little-endian.
"""

from __future__ import annotations

import enum
from functools import cache
from struct import Struct
from typing import Any

import numpy as np

from rankwise.basics.arguments import with_article

#: What each encoded object begins with: a mark that no pickle and no text begins with, and the layout's version.
MAGIC = b"\xc1\x01"

#: How deep containers may be nested.
MAX_DEPTH = 64
#: How many items all containers of one object may hold together; a dict's entry counts as two.
MAX_ITEMS = 2**24
#: The width of the widest int. Wider ones would make arithmetic on what was received a way to stall a rank.
MAX_INT_BYTES = 8192

#: From this length on, a list or tuple of floats alone, or of ints alone, travels as packed numbers.
RUN_MIN = 16


class Tag:
    """The first byte of a value."""

    NONE, TRUE, FALSE = b"NTF"
    INT, FLOAT, COMPLEX = b"idc"
    BIG_INT, STR, BYTES, BYTEARRAY = b"IsyY"
    LIST, TUPLE, SET, FROZENSET = b"ltef"
    DICT = b"m"[0]
    ARRAY, DATACLASS, VALUE = b"ADX"


#: (container, element) -> tag of packed numbers.
NUMBER_RUNS: dict[tuple[type, type], int] = {
    (list, float): b"p"[0],
    (list, int): b"q"[0],
    (tuple, float): b"P"[0],
    (tuple, int): b"Q"[0],
}


@cache
def layout_of(fields: str) -> Struct:
    """Return the little-endian, unpadded layout of `fields`, as the struct module spells them."""
    return Struct("<" + fields)


class DecodeError(ValueError):
    """Bytes are no encoded object, or one that cannot be made here."""


# ------------------ why an object does not travel: where in it the trouble is, and what to do

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
    if isinstance(obj, enum.Enum):
        return ": send its .name or .value"
    if isinstance(obj, np.ndarray):
        return ": send numpy.asarray(...) of it"
    if hasattr(obj, "dtype") and hasattr(obj, "shape"):
        return " among objects: use the collectives for arrays, or send a copy on the host, such as its .get()"
    if isinstance(obj, memoryview):
        return ": send bytes(...) of it"
    if isinstance(obj, tuple):
        return ": send tuple(...) of it, or make the class a dataclass"
    if hasattr(kind, "__dataclass_fields__"):
        return ": put @dataclass on this subclass too"
    base = next((base for base in _BASES if isinstance(obj, base)), None)
    return "" if base is None else f": send {base.__name__}(...) of it"
