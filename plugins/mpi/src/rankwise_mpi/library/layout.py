"""How a list of arrays is handed to MPI's `v` calls: without a copy wherever counts and displacements can say it.

The parts of a list may be views of one array, one after the other, or arrays that lie anywhere. MPI takes one base
address and, for each part, a displacement, which in most libraries has 32 bits; the unit is the extent of a datatype
and ours to choose. How a rank's own parts lie is nobody else's business: the type signature is so many bytes.

The invariant of memory: **what MPI may still read or write is held together with the arguments of its call.** An array
among the arguments holds its own memory. An address does not, so this module alone makes buffers of addresses, and each
is an `AtAddress`, which holds the arrays that lie there. The arguments are held until the request has ended: by the
frame of a synchronous call, by the work of an asynchronous one, and by `Process.keep` when the request is given up.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any

import numpy as np
from mpi4py import MPI

from rankwise.backends import Array
from rankwise.errors import UnsupportedOperationError


def address_of(array: Array) -> int:
    """Return where an array lies."""
    return MPI.Get_address(array) if type(array) is np.ndarray else int(array.data.ptr)


class AtAddress(list[Any]):
    """A buffer as mpi4py takes it, memory first, that is told by its address; it holds the arrays that lie there.

    Args:
        address: Where the memory begins.
        nbytes: How long it is.
        told: What follows: count and datatype, or counts, displacements and datatype.
        arrays: What lies there.
    """

    __slots__ = ("_arrays",)

    def __init__(self, address: int, nbytes: int, told: Iterable[Any], arrays: Any) -> None:
        super().__init__((MPI.buffer.fromaddress(address, nbytes), *told))
        self._arrays = arrays


def one_after_the_other(parts: Sequence[Array], datatype: MPI.Datatype) -> AtAddress | None:
    """Return parts as one buffer of elements to be reduced; None if they do not lie one directly after the other."""
    begin = end = 0
    for part in parts:
        if part.nbytes:
            start = address_of(part)
            begin = begin or start
            if end and start != end:
                return None
            end = start + part.nbytes
    return AtAddress(begin, end - begin, (sum([part.size for part in parts]), datatype), tuple(parts))


def new_bytes(like: Array, nbytes: int) -> Array:
    """Return new memory on the device of another array."""
    return (np if type(like) is np.ndarray else sys.modules["cupy"]).empty(nbytes, np.uint8)


class Layout(AtAddress):
    """One list of parts as MPI is told of it: the buffer of a `v` call.

    Args:
        parts: The parts.
        limit: The largest count or displacement that the library takes.
        fill: Whether the parts are sent, so that a copy has to be filled now.
    """

    __slots__ = ("_parts", "_types", "_whole")

    def __init__(self, parts: Sequence[Array], limit: int, fill: bool) -> None:
        self._parts = tuple(parts)
        self._types: list[MPI.Datatype] = []
        self._whole: Array | None = None
        sizes = [part.nbytes for part in parts]
        starts = [address_of(part) if part.nbytes else 0 for part in parts]
        base = min((start for start in starts if start), default=0)
        displacements = [start - base if start else 0 for start in starts]
        held: Any = self._parts
        told = self._tell(sizes, displacements, limit)
        if told is None:
            held = self._copy(fill)
            base, displacements = address_of(held), [sum(sizes[:i]) for i in range(len(sizes))]
            told = self._tell(sizes, displacements, limit)
        if told is None:
            raise UnsupportedOperationError(
                f"parts of {sum(sizes)} bytes that have no large divisor in common are too many for an MPI library "
                "whose counts have 32 bits; use one with the large counts of MPI 4, such as MPICH, or smaller parts"
            )
        span = max((d + n for d, n in zip(displacements, sizes, strict=True)), default=0)
        super().__init__(base, span, told, held)

    @property
    def copied(self) -> bool:
        """Whether the parts go through a copy."""
        return self._whole is not None

    def fill(self, index: int) -> None:
        """Copy one part into its place in the copy."""
        if self._whole is not None:
            start = sum(part.nbytes for part in self._parts[:index])
            self._whole[start : start + self._parts[index].nbytes] = _bytes(self._parts[index])

    def receive(self) -> None:
        """Copy what has come into the parts, where it is not there already, and give the datatypes back."""
        self.free()
        if self._whole is not None:
            start = 0
            for part in self._parts:
                _bytes(part)[...] = self._whole[start : start + part.nbytes]
                start += part.nbytes

    def free(self) -> None:
        """Give the datatypes back."""
        for datatype in self._types:
            datatype.Free()
        self._types.clear()

    def _tell(self, sizes: list[int], displacements: list[int], limit: int) -> tuple[Any, ...] | None:
        """Return counts, displacements and datatype that describe the parts, or None if they do not fit."""
        if max(*sizes, *displacements) <= limit:
            return sizes, displacements, MPI.BYTE
        if len(set(sizes)) == 1:
            # Each part is one element, and the extent is whatever all distances have in common.
            stride = gcd(*displacements) or 1
            if max(displacements) // stride <= limit and sizes[0] <= limit:
                element = MPI.BYTE.Create_contiguous(sizes[0])
                return [1] * len(sizes), [d // stride for d in displacements], self._new(element, stride)
        unit = gcd(*sizes, *displacements)
        if max(*sizes, *displacements) // unit > limit:
            return None
        element = MPI.BYTE.Create_contiguous(unit)
        return [n // unit for n in sizes], [d // unit for d in displacements], self._new(element, unit)

    def _new(self, element: MPI.Datatype, extent: int) -> MPI.Datatype:
        resized = element.Create_resized(0, extent).Commit()
        element.Free()
        self._types.append(resized)
        return resized

    def _copy(self, fill: bool) -> Array:
        whole = self._whole = new_bytes(self._parts[0], sum(part.nbytes for part in self._parts))
        if fill:
            for i in range(len(self._parts)):
                self.fill(i)
        return whole


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8) if array.nbytes else new_bytes(array, 0)
