"""Dicts and sets of keys that somebody may have chosen to collide, built under a clock.

How many slots and equal hashes a key meets in a dict is CPython's affair: ints walk along chains of slots, a comparison
of two frozensets may itself cost the square of their members, and the next version does it otherwise. So nothing of
that is foreseen: the time that keys take is measured, and compared with that of all else. A key that is no plain value
is put in alone: it costs no more than what has been made before, itself included, as comparisons of it meet the same
members that its making did.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any

from rankwise_codec.layout import DecodeError

__all__ = ["FEW", "FLAT", "Building"]

#: Keys that are compared in next to no time, and how many of them a dict or set may have that is not measured; of more,
#: how many are put in between two looks at the clock.
FLAT = frozenset((str, bytes, int, float, complex, bool, type(None)))
FEW, _STEP = 64, 256
#: What is not measured at all, as the square of it is little.
_SHORT_NBYTES = 4096
#: How long keys may take, and how many times as long as all else. Those that do not collide take less than half of it.
_FREE_S, _TIMES = 0.25, 2.0


class Building:
    """Measures how the dicts and sets of one object, of so many bytes, come to be."""

    __slots__ = ("_began_cpu_s", "_began_s", "_took_s")

    def __init__(self, nbytes: int) -> None:
        self._took_s = -math.inf
        if nbytes > _SHORT_NBYTES:
            self._took_s, self._began_s, self._began_cpu_s = 0.0, perf_counter(), thread_time()

    def dict_of(self, keys: list[Any], values: list[Any]) -> dict[Any, Any]:
        """Return a dict of many keys."""
        items: dict[Any, Any] = {}
        if FLAT.issuperset(map(type, keys)):
            for first in range(0, len(keys), _STEP):
                some = slice(first, first + _STEP)
                self.timed(items.update, zip(keys[some], values[some], strict=True))
        else:
            for key, value in zip(keys, values, strict=True):
                self.timed(items.__setitem__, key, value)
        return items

    def set_of(self, members: list[Any]) -> set[Any]:
        """Return a set."""
        flat = FLAT.issuperset(map(type, members))
        if flat and len(members) <= FEW:
            return set(members)
        made: set[Any] = set()
        if flat:
            for first in range(0, len(members), _STEP):
                self.timed(made.update, members[first : first + _STEP])
        else:
            for member in members:
                self.timed(made.add, member)
        return made

    def timed(self, put: Callable[..., object], *what: Any) -> None:
        """Put in what may take long.

        Raises:
            DecodeError: All that was put in has taken too long.
        """
        began_s = perf_counter()
        put(*what)
        self._took_s += perf_counter() - began_s
        if self._took_s > _FREE_S:
            self._judge()

    def _judge(self) -> None:
        """Tell apart keys that take long from a thread that others have kept waiting, by its time on a processor."""
        else_s = perf_counter() - self._began_s - self._took_s
        took_s = thread_time() - self._began_cpu_s - else_s  # at the least
        if took_s > max(_FREE_S, _TIMES * else_s):
            raise DecodeError("the keys of dicts or members of sets collide, and take too long")
