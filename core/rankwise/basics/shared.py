"""Arrays that the ranks of a host have in common, and how all ranks know that they mean the same: by a mark.

Who makes such memory notes it, and a backend need not move what is there already.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

from rankwise.basics import native
from rankwise.basics.arrays import Array

#: What a rank tells of memory in common: this bit, a mark that is the same on all ranks for the same memory, and
#: `IN_PLACE` if its own part is there already.
COMMON, IN_PLACE = 1 << 61, 1
#: Where ranks have an array each, in blocks of such memory: which is a rank's; it stands in the place of `IN_PLACE`.
PLACES = 255
_MASK = (1 << 64) - 1
_SPREAD, _PRIME = 0x9E3779B97F4A7C15, 0x100000001B3


class _Stretch(NamedTuple):
    """Memory in common: where it ends, what stands for it, how long its blocks are, and all of it as bytes."""

    end: int
    mark: int
    stride: int
    memory: weakref.ref[Array]


#: By where each begins.
_known: dict[int, _Stretch] = {}


class Blocks(NamedTuple):
    """An array in one of several blocks.

    Attributes:
        word: What this rank tells of it.
        arrays: Where it would lie in each block, as arrays of one dimension.
    """

    word: int
    arrays: list[Array]


def note_shared(memory: Array, number: int, array_type: type, blocks: int = 1) -> None:
    """Note that ranks have memory in common, until it goes.

    Args:
        memory: All of it, as bytes.
        number: The same on all ranks that have this memory, and on no rank for any other.
        array_type: The type of arrays in it, which compiled parts take for NumPy's own.
        blocks: In how many equal blocks ranks have an array each; 1 if they have one together.
    """
    address, mark = _address_of(memory), number * _SPREAD & _MASK
    stride = memory.nbytes // blocks
    _known[address] = _Stretch(address + memory.nbytes, mark, stride, weakref.ref(memory))
    compiled = native.module()
    if compiled is not None:
        compiled.note_shared(array_type, address, memory.nbytes, mark, stride)
    weakref.finalize(memory, _forget, address).atexit = False


def shared_word(parts: Sequence[Array]) -> int:
    """Return, but for `IN_PLACE`, what a rank tells of arrays; 0 if all are empty, or one is not in such memory."""
    mixed, found = 0xCBF29CE484222325, False
    for part in parts if _known else ():
        if part.size:
            at = _address_of(part)
            place = _place_of(at, part.nbytes)
            if place is None or place[1].stride < place[1].end - place[0]:
                return 0
            mixed, found = ((mixed ^ (place[1].mark + at - place[0] & _MASK)) * _PRIME) & _MASK, True
    return COMMON | mixed & (COMMON - 1) & ~IN_PLACE if found else 0


def shared_blocks(array: Array) -> Blocks | None:
    """Return where ranks have such an array each, if they do."""
    at = _address_of(array) if _known and array.size else 0
    place = _place_of(at, array.nbytes) if at else None
    if place is None:
        return None
    begin, (end, mark, stride, memory) = place
    number, offset = divmod(at - begin, stride)
    count, whole = (end - begin) // stride, memory()
    if whole is None or not 2 <= count <= PLACES or offset + array.nbytes > stride:
        return None
    told = (mark + offset & _MASK) * _PRIME & _MASK
    parts = [whole[block * stride + offset :][: array.nbytes].view(array.dtype) for block in range(count)]
    return Blocks(COMMON | told & (COMMON - 1) & ~PLACES | number, parts)


def _place_of(at: int, nbytes: int) -> tuple[int, _Stretch] | None:
    for begin, stretch in [*_known.items()]:
        if begin <= at and at + nbytes <= stretch.end:
            return begin, stretch
    return None


def _address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _forget(address: int) -> None:
    _known.pop(address, None)
    compiled = native.module()
    if compiled is not None:
        compiled.forget_shared(address)
