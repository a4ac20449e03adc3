"""Messages between neighbours in a grid.

Each direction, diagonal ones too, has messages of its own, so that none waits for another and corners need no second
round. In a small periodic grid one rank may be beside another in several directions: tags tell these apart, or where
there are none the order in which both go through the directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import rankwise as dist
from rankwise_arrays.kinds import Array, Group, copied, empty, in_order
from rankwise_arrays.messages import tag_for
from rankwise_arrays.waits import wait_all, work_has_ended

__all__ = ["Exchange", "exchange", "trade"]

Step = tuple[int, ...]
Place = tuple[slice, ...]


class Exchange:
    """An exchange of halos that is under way."""

    def __init__(self, array: Array, works: list[Any], come: list[tuple[Place, Array]]) -> None:
        self._array, self._works, self._come = array, works, come

    def is_completed(self) -> bool:
        """Tell whether all messages have come, so that `wait` takes no time."""
        return all(map(work_has_ended, self._works))

    def wait(self, timeout: Any = None) -> None:
        """Wait for the messages, and fill the halos.

        Args:
            timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

        Raises:
            DistTimeoutError: It has taken too long.
        """
        wait_all(self._works, timeout)
        while self._come:
            place, part = self._come.pop()
            self._array[place] = part


def exchange(array: Array, widths: Sequence[int], beside: Iterable[tuple[Step, int]], group: Group) -> Exchange:
    """Begin to exchange halos with the ranks beside this one.

    Raises:
        ValueError: The array is too small for such halos.
    """
    _check(array, widths)
    there = dict(beside)
    steps = sorted(there)
    come: list[tuple[Place, Array]] = []
    works: list[Any] = []
    me = dist.get_rank()
    for step in reversed(steps):  # in the order in which the others send: what comes from one side goes to the other
        if there[step] != me:
            place = _halo(step, widths)
            part = empty(array, array[place].shape)
            works.append(dist.irecv(part, there[step], group, tag_for(group, _number([-one for one in step]))))
            come.append((place, part))
    for step in steps:
        part = copied(array[_inside(step, widths)])
        if there[step] == me:
            come.append((_halo([-one for one in step], widths), part))
        else:
            works.append(dist.isend(part, there[step], group, tag_for(group, _number(step))))
    return Exchange(array, works, come)


def trade(arrays: Sequence[Array], beside: Sequence[int | None], group: Group, timeout: Any) -> list[Array | None]:
    """Send each neighbour an array and return what comes; neighbours stand in pairs, on either side."""
    me, come, works = dist.get_rank(), list[Any](), list[Any]()
    for place in reversed(range(len(beside))):
        peer, part = beside[place], None
        if peer == me:
            part = copied(arrays[place ^ 1])
        elif peer is not None:
            part = empty(arrays[place], arrays[place].shape)
            works.append(dist.irecv(part, peer, group, tag_for(group, place ^ 1)))
        come.append(part)
    for place, peer in enumerate(beside):
        if peer is not None and peer != me:
            works.append(dist.isend(in_order(arrays[place]), peer, group, tag_for(group, place)))
    wait_all(works, timeout)
    return come[::-1]


def _check(array: Array, widths: Sequence[int]) -> None:
    if array.ndim < len(widths):
        raise ValueError(f"exchange_halos: an array of {array.ndim} dimensions in a grid of {len(widths)}")
    for axis, width in enumerate(widths):
        if width < 0 or array.shape[axis] < 3 * width:
            raise ValueError(
                f"exchange_halos: {array.shape[axis]} elements along axis {axis} are too few for halos of {width}: "
                f"at least {width} must be this rank's own"
            )


def _inside(step: Sequence[int], widths: Sequence[int]) -> Place:
    """Return where what goes in a direction is: this rank's own outermost elements."""
    return tuple(_side(one, width, width) for one, width in zip(step, widths, strict=True))


def _halo(step: Sequence[int], widths: Sequence[int]) -> Place:
    """Return where what comes from a direction goes."""
    return tuple(_side(one, width, 0) for one, width in zip(step, widths, strict=True))


def _side(one: int, width: int, edge: int) -> slice:
    """Return what of an axis is at its lower or upper side, beyond so many elements, or what is no halo."""
    if one == 0:
        return slice(width, -width or None)
    if width == 0:
        return slice(0)
    return slice(edge, edge + width) if one < 0 else slice(-edge - width, -edge or None)


def _number(step: Sequence[int]) -> int:
    """Return a number for a direction."""
    number = 0
    for one in step:
        number = 3 * number + one + 1
    return number
