"""How a list of arrays is handed to MPI's `v` calls: without a copy wherever counts and displacements can say it.

The parts of a list may be views of one array, one after the other, or arrays that lie anywhere. MPI takes one base
address and, for each part, a displacement, which in most libraries has 32 bits; the unit is the extent of a datatype
and ours to choose. How a rank's own parts lie is nobody else's business: the type signature is so many bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
from mpi4py import MPI

from rankwise.backends import Array
from rankwise.errors import UnsupportedOperationError

__all__ = ["Layout", "address_of", "contiguous", "new_bytes"]


def address_of(array: Array) -> int:
    """Return where an array lies."""
    return MPI.Get_address(array) if type(array) is np.ndarray else int(array.data.ptr)


def contiguous(parts: Sequence[Array]) -> bool:
    """Tell whether the parts lie one directly after the other."""
    ends = None
    for part in parts:
        if part.nbytes:
            start = address_of(part)
            if ends is not None and start != ends:
                return False
            ends = start + part.nbytes
    return True


def new_bytes(like: Array, nbytes: int) -> Array:
    """Return new memory on the device of another array."""
    return (np if type(like) is np.ndarray else sys.modules["cupy"]).empty(nbytes, np.uint8)


class Layout:
    """One list of parts as MPI is told of it.

    Args:
        parts: The parts.
        limit: The largest count or displacement that the library takes.
        fill: Whether the parts are sent, so that a copy has to be filled now.

    Attributes:
        message: What mpi4py takes for the buffer of a `v` call.
    """

    def __init__(self, parts: Sequence[Array], limit: int, fill: bool) -> None:
        self._parts = parts
        self._types: list[MPI.Datatype] = []
        self._whole: Array | None = None
        sizes = [part.nbytes for part in parts]
        starts = [address_of(part) if part.nbytes else 0 for part in parts]
        base = min((start for start in starts if start), default=0)
        displacements = [start - base if start else 0 for start in starts]
        told = self._tell(sizes, displacements, limit)
        if told is None:
            base, displacements = self._copy(fill), [sum(sizes[:i]) for i in range(len(sizes))]
            told = self._tell(sizes, displacements, limit)
        if told is None:
            raise UnsupportedOperationError(
                f"parts of {sum(sizes)} bytes that have no large divisor in common are too many for an MPI library "
                "whose counts have 32 bits; use one with the large counts of MPI 4, such as MPICH, or smaller parts"
            )
        span = max((d + n for d, n in zip(displacements, sizes, strict=True)), default=0)
        self.message: list[Any] = [MPI.buffer.fromaddress(base, span), *told]

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

    def _copy(self, fill: bool) -> int:
        whole = self._whole = new_bytes(self._parts[0], sum(part.nbytes for part in self._parts))
        if fill:
            for i in range(len(self._parts)):
                self.fill(i)
        return address_of(whole)


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8) if array.nbytes else new_bytes(array, 0)
