"""Dicts and sets of keys that somebody may have chosen to collide, built under a clock.

How many slots and equal hashes a key meets in a dict is CPython's affair: ints walk along chains of slots, a comparison
of two frozensets may itself cost the square of their members, and the next version does it otherwise. So nothing of
that is foreseen: the time on a processor that keys take is measured, and compared with that of all else. A key that is
no plain value is put in alone: it costs no more than what has been made before, itself included, as comparisons of it
meet the same members that its making did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter, thread_time
from typing import Any

from rankwise.codec.layout import DecodeError, Tag

#: Keys of which few have the same hash, and how many of them there may be where nothing is measured; of more, so many
#: are put in between two looks at the clock.
PLAIN = frozenset((Tag.NONE, Tag.TRUE, Tag.FALSE, Tag.INT, Tag.FLOAT, Tag.STR, Tag.BYTES))
_PLAIN = frozenset((type(None), bool, int, float, str, bytes))
FEW = 256
#: What is not measured either, as the square of it is little.
SHORT_NBYTES = 1024
#: How often the time on a processor is looked at, which takes longer than to look at another clock.
_LOOK_S = 1e-4
#: How long keys may take, and how many times as long as all else. Those that do not collide take less than half of it.
_FREE_S, _TIMES = 0.25, 2.0


class Building:
    """Makes the dicts and sets of one object, of so many bytes.

    All methods raise `DecodeError` where the keys have taken too long.
    """

    __slots__ = ("_began_s", "_took_s")

    def __init__(self, nbytes: int) -> None:
        self._began_s = thread_time() if nbytes > SHORT_NBYTES else 0.0
        self._took_s = 0.0

    def dict_of(self, keys: list[Any], values: list[Any]) -> dict[Any, Any]:
        """Return a dict of many keys."""
        items: dict[Any, Any] = {}
        if _PLAIN.issuperset(map(type, keys)):
            slices = [slice(first, first + FEW) for first in range(0, len(keys), FEW)]
            self._put(items.update, ((zip(keys[some], values[some], strict=True),) for some in slices))
        else:
            self._put(items.__setitem__, zip(keys, values, strict=True))
        return items

    def set_of(self, members: list[Any], nbytes: int) -> set[Any]:
        """Return a set that has come as so many bytes."""
        if nbytes <= SHORT_NBYTES:
            return set(members)
        made: set[Any] = set()
        if _PLAIN.issuperset(map(type, members)):
            self._put(made.update, ((members[first : first + FEW],) for first in range(0, len(members), FEW)))
        else:
            self._put(made.add, zip(members, strict=True))
        return made

    def _put(self, put: Callable[..., object], steps: Iterable[tuple[Any, ...]]) -> None:
        since_s, look_at_s = thread_time(), perf_counter() + _LOOK_S
        for step in steps:
            put(*step)
            if perf_counter() > look_at_s:
                since_s, look_at_s = self._judge(since_s), perf_counter() + _LOOK_S
        self._judge(since_s)

    def _judge(self, since_s: float) -> float:
        """Count what keys have taken since then; return the time."""
        now_s = thread_time()
        self._took_s += now_s - since_s
        if self._took_s > max(_FREE_S, _TIMES * (now_s - self._began_s - self._took_s)):
            raise DecodeError("the keys of dicts or members of sets collide, and take too long")
        return now_s
