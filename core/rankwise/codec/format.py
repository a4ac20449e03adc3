"""The format: one byte for the type, then the content. Numbers are little-endian."""

from __future__ import annotations

import struct

__all__ = ["COUNT", "DOUBLE", "LONG", "MAX_DEPTH", "MAX_INT_NBYTES", "SIZE", "TWO_DOUBLES", "Code"]

#: How deep containers may be nested.
MAX_DEPTH = 64
#: Longest integer.
MAX_INT_NBYTES = 1 << 20

COUNT = struct.Struct("<I")
SIZE = struct.Struct("<Q")
LONG = struct.Struct("<q")
DOUBLE = struct.Struct("<d")
TWO_DOUBLES = struct.Struct("<dd")


class Code:
    """The byte that stands for each type."""

    NONE, TRUE, FALSE = b"N", b"T", b"F"
    INT, BIG_INT, FLOAT, COMPLEX = b"i", b"I", b"f", b"c"
    STR, BYTES, BYTEARRAY = b"s", b"b", b"y"
    LIST, TUPLE, DICT, SET, FROZENSET = b"l", b"t", b"d", b"e", b"E"
    ARRAY, SCALAR = b"a", b"n"
    DATETIME, DATE, TIME, TIMEDELTA = b"M", b"D", b"h", b"m"
    DECIMAL, FRACTION, UUID = b"1", b"/", b"u"
    DATACLASS = b"k"
