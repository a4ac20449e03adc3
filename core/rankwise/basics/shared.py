"""Arrays that the ranks of a host have in common, and how all ranks know that they mean the same: by a mark.

Who makes such memory notes it, and a backend need not move what is there already.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from rankwise.basics import native
from rankwise.basics.arrays import Array

__all__ = ["COMMON", "IN_PLACE", "note_shared", "shared_word"]

#: What a rank tells of memory in common: this bit, a mark that is the same on all ranks for the same memory, and
#: `IN_PLACE` if its own part is there already.
COMMON, IN_PLACE = 1 << 61, 1
_MASK = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15
#: Where each begins, where it ends, and what stands for it.
_known: dict[int, tuple[int, int]] = {}


def note_shared(memory: Array, number: int, array_type: type) -> None:
    """Note that ranks have memory in common, until it goes.

    Args:
        memory: All of it, as bytes.
        number: The same on all ranks that have this memory, and on no rank for any other.
        array_type: The type of arrays in it, which compiled parts take for NumPy's own.
    """
    address, mark = _address_of(memory), number * _SPREAD & _MASK
    _known[address] = (address + memory.nbytes, mark)
    compiled = native.module()
    if compiled is not None:
        compiled.note_shared(array_type, address, memory.nbytes, mark)
    weakref.finalize(memory, _forget, address).atexit = False


def shared_word(parts: Sequence[Array]) -> int:
    """Return, but for `IN_PLACE`, what a rank tells of arrays; 0 if all are empty, or one is not in such memory."""
    mixed, found = 0xCBF29CE484222325, False
    for part in parts if _known else ():
        if part.size:
            place = _place_of(_address_of(part), part.nbytes)
            if place is None:
                return 0
            mixed, found = ((mixed ^ place) * 0x100000001B3) & _MASK, True
    return COMMON | mixed & (COMMON - 1) & ~IN_PLACE if found else 0


def _place_of(at: int, nbytes: int) -> int | None:
    for begin, (end, mark) in [*_known.items()]:
        if begin <= at and at + nbytes <= end:
            return mark + at - begin & _MASK
    return None


def _address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _forget(address: int) -> None:
    _known.pop(address, None)
    compiled = native.module()
    if compiled is not None:
        compiled.forget_shared(address)
