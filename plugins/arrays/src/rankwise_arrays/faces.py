"""Halos through a window: each rank writes all its faces into its half, and its neighbours read theirs there.

Ranks may have arrays of different shapes. They tell them as they meet, and where a face lies follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

import rankwise as dist
from rankwise_arrays.fences import tell
from rankwise_arrays.halos import Place, Side, number_of
from rankwise_arrays.kinds import Array, Group
from rankwise_arrays.together import compare, together
from rankwise_arrays.windows import HALF_NBYTES, Window

#: Faces begin at lines of the cache.
_LINE_NBYTES = 64

Shape = tuple[int, ...]
#: For each half of a window, pairs of a place in an array and a face in the window.
Copies = list[list[tuple[Place, Array]]]


class Form(NamedTuple):
    """The form of an exchange on one rank: that of its array, and how wide the halos are."""

    shape: Shape
    dtype: np.dtype[Any]
    widths: tuple[int, ...]

    @property
    def text(self) -> str:
        """What all ranks must have in common."""
        return f"{self.dtype!r}, halos of {list(self.widths)}"


class Faces:
    """Exchanges of one form on one rank.

    Args:
        window: What they go through.
        form: The form.
        between: What is between this rank and those beside it.
        group: The group of the grid.
    """

    def __init__(self, window: Window, form: Form, between: Sequence[Side], group: Group) -> None:
        self.window = window
        self._form, self._between, self._group = form, between, group
        self._ranks = dist.get_process_group_ranks(group)
        self._record = np.array([crc32(form.text.encode()), *form.shape], np.int64)
        self._rows = np.empty((len(self._ranks), self._record.size), np.int64)
        mine = [form.shape] * len(self._ranks)
        self._going = self._copies(mine, [(dist.get_rank(), side.number, side.inside) for side in between])
        self._told, self._coming = b"", self._going

    def exchange(self, array: Array, timeout: Any) -> bool:
        """Fill the halos of an array; false on all ranks if the faces of one of them are too large for a half.

        Raises:
            CollectiveMismatchError: The ranks exchange halos of different widths or dtypes; the same on all ranks.
            ValueError: A neighbour's face has another shape than the halo.
        """
        turn, told = self.window.turn(), self._rows
        if self._going is not None:
            for place, face in self._going[turn]:
                face[...] = array[place]
        tell(told, self._record, self._group, timeout)
        if (text := told.tobytes()) != self._told:
            self._coming, self._told = self._read(told), text
        if self._coming is None:
            return False
        for place, face in self._coming[turn]:
            array[place] = face
        return True

    def _read(self, told: Array) -> Copies | None:
        """Return where what comes lies, as all ranks have told; None if there is no room for some rank's faces."""
        if (told[:, 0] != self._record[0]).any():
            said = together("exchange_halos", lambda: self._form.text, self._group)
            compare("exchange_halos", "exchange halos of one dtype and width", said, self._group)
        shapes = [tuple(shape) for shape in told[:, 1:].tolist()]
        copies = self._copies(shapes, [(side.rank, side.back, side.halo) for side in self._between])
        for place, face in [] if copies is None else copies[0]:
            halo = np.broadcast_to(np.uint8(0), self._form.shape)[place].shape
            if face.shape != halo:
                raise ValueError(f"exchange_halos: a face of shape {face.shape} comes for a halo of shape {halo}")
        return copies

    def _copies(self, shapes: Sequence[Shape], faces: Sequence[tuple[int, int, Place]]) -> Copies | None:
        """Return pairs of faces, given by a rank and a number, and their places; None if some rank's have no room."""
        laid = [_laid(shape, self._form.widths, self._form.dtype.itemsize) for shape in shapes]
        if max(nbytes for _, nbytes in laid) > HALF_NBYTES:
            return None
        found: Copies = [[], []]
        for copies, halves in zip(found, self.window.halves, strict=True):
            for rank, number, place in faces:
                index = self._ranks.index(rank)
                begin, shape = laid[index][0][number]
                end = begin + prod(shape) * self._form.dtype.itemsize
                copies.append((place, halves[index][begin:end].view(self._form.dtype).reshape(shape)))
        return found


@lru_cache(256)
def _laid(shape: Shape, widths: Shape, itemsize: int) -> tuple[dict[int, tuple[int, Shape]], int]:
    """Return where in its half a rank with an array of some shape has each face, and of what shape; and the end."""
    faces: dict[int, tuple[int, Shape]] = {}
    end = 0
    for step in product((-1, 0, 1), repeat=len(widths)):
        inner = zip(step, shape, widths, strict=False)
        face = (*(width if one else length - 2 * width for one, length, width in inner), *shape[len(widths) :])
        faces[number_of(step)] = end, face
        end += -(-prod(face) * itemsize // _LINE_NBYTES) * _LINE_NBYTES if any(step) else 0
    return faces, end
