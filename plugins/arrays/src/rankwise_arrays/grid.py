"""Ranks in a grid: their coordinates, their neighbours, and the exchange of halos."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_arrays.faces import Faces, Form
from rankwise_arrays.halos import Exchange, Messages, check, exchange, sides
from rankwise_arrays.kinds import Array, Group
from rankwise_arrays.messages import tag_for
from rankwise_arrays.windows import window_of

#: For how many forms of arrays a grid keeps where their faces go.
_MOST_FORMS = 16


def grid(shape: Sequence[int] | int, periodic: bool | Sequence[bool] = False, group: Group = None) -> Grid:
    """Arrange the ranks of a group in a grid, row by row.

    The call needs no communication.

    Args:
        shape: How many ranks each axis has. The call replaces a 0 so that axes are about equally long; one number
            is the number of axes, all of them chosen.
        periodic: Whether each axis ends where it begins: for all, or for each.
        group: The group; None is the default group.

    Returns:
        The grid, as this rank sees it.

    Raises:
        ValueError: The shape does not have as many places as the group has ranks, or this rank is not in the group.

    Examples:
        >>> ring = dist.grid([2], periodic=True)
        >>> ring.coords, ring.shift(0)
        ((0,), (1, 1))
        >>> dist.grid(2).shape
        (2, 1)
    """
    size = dist.get_world_size(group)
    if size < 0:
        raise ValueError("grid: this rank is not in the group")
    wanted = [0] * shape if isinstance(shape, int) else list(shape)
    filled = _filled(wanted, size)
    around = [periodic] * len(filled) if isinstance(periodic, bool) else list(periodic)
    if len(around) != len(filled):
        raise ValueError(f"grid: {len(around)} values of periodic for {len(filled)} axes")
    return Grid(filled, tuple(around), dist.get_process_group_ranks(group), dist.get_rank(), group)


class Grid:
    """A grid of ranks, as one of them sees it.

    Attributes:
        shape: How many ranks there are along each axis.
        periodic: Whether each axis ends where it begins.
        coords: Where this rank is.
        group: The group that the ranks are of.
    """

    def __init__(
        self, shape: tuple[int, ...], periodic: tuple[bool, ...], ranks: Sequence[int], rank: int, group: Group
    ) -> None:
        self.shape, self.periodic, self.group = shape, periodic, group
        self._ranks = list(ranks)
        self._faces: dict[tuple[Any, ...], Faces] = {}  # by an array's shape and dtype, and the width as given
        self.coords = self.coords_of(rank)

    def __repr__(self) -> str:
        return f"<Grid of {' x '.join(map(str, self.shape))} ranks, this one at {self.coords}>"

    def coords_of(self, rank: int) -> tuple[int, ...]:
        """Return where a rank is.

        Args:
            rank: A global rank.

        Raises:
            ValueError: It is not in the grid.
        """
        if rank not in self._ranks:
            raise ValueError(f"grid: rank {rank} is not in it")
        place, coords = self._ranks.index(rank), []
        for length in reversed(self.shape):
            coords.append(place % length)
            place //= length
        return tuple(reversed(coords))

    def rank_of(self, coords: Sequence[int]) -> int | None:
        """Return the global rank at a place; None beyond an edge, as of an axis that is not periodic."""
        place = 0
        for at, length, around in zip(coords, self.shape, self.periodic, strict=True):
            if not around and not 0 <= at < length:
                return None
            place = place * length + at % length
        return self._ranks[place]

    def shift(self, axis: int, distance: int = 1) -> tuple[int | None, int | None]:
        """Return the ranks from which this one receives and to which it sends along an axis; None beyond an edge.

        Args:
            axis: The axis.
            distance: How far, and in which direction.
        """
        return self._at({axis: -distance}), self._at({axis: distance})

    def neighbours(self) -> list[int | None]:
        """Return this rank's neighbours, two for each axis, the lower one first; None beyond an edge."""
        return [self._at({axis: step}) for axis in range(len(self.shape)) for step in (-1, 1)]

    def sub(self, *axes: int) -> Grid:
        """Return the grid of the ranks that differ from this one only in some axes; all ranks make the call.

        Args:
            axes: The axes that stay.

        Returns:
            A grid over a new group.
        """
        kept = sorted(axis % len(self.shape) for axis in axes)
        others = [axis for axis in range(len(self.shape)) if axis not in kept]
        parts = [
            [rank for rank in self._ranks if tuple(self.coords_of(rank)[axis] for axis in others) == fixed]
            for fixed in product(*(range(self.shape[axis]) for axis in others))
        ]
        local = [[self._ranks.index(rank) for rank in part] for part in parts]
        made = dist.split_group(self.group, local)
        shape = tuple(self.shape[axis] for axis in kept)
        around = tuple(self.periodic[axis] for axis in kept)
        return Grid(shape, around, dist.get_process_group_ranks(made), dist.get_rank(), made)

    def exchange_halos(
        self, array: Array, width: int | Sequence[int] = 1, *, async_op: bool = False, timeout: Any = None
    ) -> Exchange | None:
        """Fill the edges of this rank's array with the neighbours' values, corners included.

        The outermost `width` elements along each axis belong to the ranks beside: what they have innermost of it is
        copied there. Edges beside nobody stay as they are. All ranks of the grid make the call, with the same width,
        dtype and `async_op`.

        Args:
            array: This rank's part, halos included. Its first axes are those of the grid; of more, all is copied.
            width: How wide the halos are: for all axes, or for each.
            async_op: Return immediately; `wait()` of what is returned fills the halos. The outermost elements that are
                not halo must not be changed before.
            timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

        Returns:
            None, or with `async_op` what has `wait()`.

        Raises:
            ValueError: The array has fewer axes than the grid, or is too small for such halos.
            CollectiveMismatchError: The widths or dtypes differ, where ranks exchange halos in shared memory.

        Examples:
            >>> ring = dist.grid([2], periodic=True)
            >>> line = np.array([-1, rank, rank, -1])
            >>> ring.exchange_halos(line)
            >>> line
            array([1, 0, 0, 1])
        """
        faces = None if async_op else self._faces_of(array, width)
        if faces is not None and faces.exchange(array, timeout):
            return None
        widths = self._widths(array, width)
        messages = Messages(self.group, self._tag, timeout, async_op)
        begun = exchange(array, sides(self._beside, widths), messages)
        if async_op:
            return begun
        begun.wait(timeout)
        return None

    def all_gather(self, array: Array, *, timeout: Any = None) -> list[Array | None]:
        """Send an array to all neighbours, and return theirs, in the order of `neighbours`.

        Args:
            array: What this rank gives; of one dtype and shape on all ranks.
            timeout: How long it may take; None is the group's time-out.

        Returns:
            What comes from each; None from nobody.
        """
        return self.all_to_all([array] * (2 * len(self.shape)), timeout=timeout)

    def all_to_all(self, arrays: Sequence[Array], *, timeout: Any = None) -> list[Array | None]:
        """Send each neighbour an array, and return what comes, in the order of `neighbours`.

        Args:
            arrays: One for each neighbour, of one dtype and shape; what is for nobody is not sent.
            timeout: How long it may take; None is the group's time-out.

        Returns:
            What comes from each; None from nobody.

        Raises:
            ValueError: There is not one array for each.
        """
        from rankwise_arrays.halos import trade

        beside = self.neighbours()
        if len(arrays) != len(beside):
            raise ValueError(f"all_to_all: {len(arrays)} arrays for {len(beside)} neighbours")
        return trade(arrays, beside, Messages(self.group, self._tag, timeout))

    def _widths(self, array: Array, width: int | Sequence[int]) -> tuple[int, ...]:
        """Return how wide the halos of an array are along each axis.

        Raises:
            ValueError: The array is too small for them.
        """
        widths = (width,) * len(self.shape) if isinstance(width, int) else tuple(width)
        check(array, widths)
        return widths

    def _faces_of(self, array: Array, width: int | Sequence[int]) -> Faces | None:
        """Return what exchanges the halos of such an array through a window; None where they go by messages."""
        if not isinstance(array, np.ndarray) or array.dtype.hasobject or array.itemsize == 0:
            return None
        if (window := window_of(self.group)) is None:
            return None
        key = array.shape, array.dtype, width if isinstance(width, int) else tuple(width)
        faces = self._faces.get(key)
        if faces is None or faces.window is not window:
            if len(self._faces) == _MOST_FORMS:
                self._faces.clear()
            form = Form(array.shape, array.dtype, self._widths(array, width))
            faces = self._faces[key] = Faces(window, form, sides(self._beside, form.widths), self.group)
        return faces

    def _at(self, steps: dict[int, int]) -> int | None:
        return self.rank_of([at + steps.get(axis, 0) for axis, at in enumerate(self.coords)])

    @cached_property
    def _tag(self) -> int:
        return tag_for(self.group)

    @cached_property
    def _beside(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Each direction, diagonal ones too, in which there is a rank, and that rank."""
        steps = [step for step in product((-1, 0, 1), repeat=len(self.shape)) if any(step)]
        there = [(step, self._at(dict(enumerate(step)))) for step in steps]
        return tuple((step, rank) for step, rank in there if rank is not None)


def _filled(shape: list[int], size: int) -> tuple[int, ...]:
    """Return a shape with its zeros chosen, the longest first.

    Raises:
        ValueError: No choice gives as many places as there are ranks.
    """
    if any(length < 0 for length in shape) or not shape:
        raise ValueError(f"grid: {tuple(shape)} is no shape")
    given = math.prod(length for length in shape if length)
    left, rest = divmod(size, given)
    free = shape.count(0)
    if rest or (not free and left != 1):
        raise ValueError(f"grid: {tuple(shape)} does not fit a group of {size}")
    chosen = [1] * free
    for factor in sorted(_factors(left), reverse=True):
        chosen[chosen.index(min(chosen))] *= factor
    lengths = iter(sorted(chosen, reverse=True))
    return tuple(length or next(lengths) for length in shape)


def _factors(number: int) -> Iterator[int]:
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1
