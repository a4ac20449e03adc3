"""Turn Python objects into bytes and back, without pickle and without trusting the bytes.

What travels, always with its exact type: None, bool, int, float, complex, str (lone surrogates too, as in file
names), bytes, bytearray, list, tuple, dict (in order, with any hashable key that travels), OrderedDict, Counter, deque,
set, frozenset, range; dataclasses; NumPy arrays, scalars and dtypes that are plain memory; date, time, datetime,
timedelta, timezone and ZoneInfo; Decimal, Fraction, UUID and POSIX paths. Arrays arrive C-contiguous, writable and
owning their memory. Anything else, subclasses of these types included, is refused by `encode`, as it could only
arrive as something else.

What `decode` promises about any bytes whatever: it returns an object or raises `DecodeError`; it imports nothing
that the bytes name, except the folder of the package tzdata in which a time zone that it lists lies; it reserves no
memory that the bytes only announce; it goes no deeper than `MAX_DEPTH` and counts no more than `MAX_ITEMS` items. It
takes time in proportion to the number of bytes, and a second more at most, where a sender who knows the secret of the
job chooses keys that collide on purpose: what takes longer is refused, whatever the keys are.

Objects are trees: an object met twice arrives as two, and one that contains itself is refused.
"""

from __future__ import annotations

from rankwise.codec.classes import register_dataclass
from rankwise.codec.decoder import decode
from rankwise.codec.encoder import encode
from rankwise.codec.layout import MAX_DEPTH, MAX_INT_BYTES, MAX_ITEMS, DecodeError

__all__ = ["MAX_DEPTH", "MAX_INT_BYTES", "MAX_ITEMS", "DecodeError", "decode", "encode", "register_dataclass"]
