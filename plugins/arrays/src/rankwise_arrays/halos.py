"""Messages between neighbours in a grid.

Each direction, diagonal ones too, has messages of its own, so that none waits for another and corners need no second
round. In a small periodic grid one rank may be beside another in several directions: tags tell these apart, or where
there are none the order in which both go through the directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import rankwise as dist
from rankwise.backends import Deadline, seconds
from rankwise_arrays.kinds import Array, Group, copied, empty, in_order
from rankwise_arrays.waits import wait_all, work_has_ended

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


class Messages:
    """Messages to some ranks and from them: all are sent first, so that most have come when they are received.

    Args:
        group: Of the ranks.
        tag: Of the first number; 0 where messages have none.
        timeout: How long all may be waited for; None is the group's time-out for each.
        async_op: Begin to receive, and wait for nobody.
    """

    def __init__(self, group: Group, tag: int, timeout: Any, async_op: bool = False) -> None:
        self.works: list[Any] = []
        self._group, self._tag, self._async_op = group, tag, async_op
        self._deadline = None if timeout is None else Deadline(seconds(timeout))

    def send(self, part: Array, to: int, number: int) -> None:
        """Begin to send."""
        self.works.append(dist.isend(part, to, self._group, self._tag and self._tag + number))

    def receive(self, part: Array, source: int, number: int) -> None:
        """Receive, or begin to."""
        tag = self._tag and self._tag + number
        if self._async_op:
            self.works.append(dist.irecv(part, source, self._group, tag))
        else:
            dist.recv(part, source, self._group, tag, timeout=self._left())

    def wait(self) -> None:
        """Wait for all that have begun."""
        wait_all(self.works, self._left())

    def _left(self) -> float | None:
        return None if self._deadline is None else self._deadline.remaining()


class Side(NamedTuple):
    """What is between a rank and the one beside it in a direction.

    Attributes:
        rank: The one beside it.
        inside: Where what goes there is: this rank's own outermost elements.
        halo: Where what comes from there goes.
        number: Of messages in that direction.
        back: Of messages in the other.
        opposite: Where what goes there is at the one beside it.
    """

    rank: int
    inside: Place
    halo: Place
    number: int
    back: int
    opposite: Place


@lru_cache(64)
def sides(beside: tuple[tuple[Step, int], ...], widths: tuple[int, ...]) -> list[Side]:
    """Return what is between a rank and all beside it, in the order of directions."""
    found = []
    for step, rank in sorted(beside):
        back = [-one for one in step]
        halo, opposite = _halo(step, widths), _halo(back, widths)
        found.append(Side(rank, _inside(step, widths), halo, number_of(step), number_of(back), opposite))
    return found


def exchange(array: Array, between: Sequence[Side], messages: Messages) -> Exchange:
    """Exchange halos with the ranks beside this one, or begin to."""
    come: list[tuple[Place, Array]] = []
    me = dist.get_rank()
    for side in between:
        part = in_order(array[side.inside])
        if side.rank == me:
            come.append((side.opposite, part))
        else:
            messages.send(part, side.rank, side.number)
    for side in reversed(between):  # in the order in which the others send: what comes from one side goes to the other
        if side.rank != me:
            part = array[side.halo]
            if not part.flags.c_contiguous:
                part = empty(array, part.shape)
                come.append((side.halo, part))
            messages.receive(part, side.rank, side.back)
    return Exchange(array, messages.works, come)


def trade(arrays: Sequence[Array], beside: Sequence[int | None], messages: Messages) -> list[Array | None]:
    """Send each neighbour an array and return what comes; neighbours stand in pairs, on either side."""
    me, come = dist.get_rank(), list[Any]()
    for place, peer in enumerate(beside):
        if peer is not None and peer != me:
            messages.send(in_order(arrays[place]), peer, place)
    for place in reversed(range(len(beside))):
        peer, part = beside[place], None
        if peer == me:
            part = copied(arrays[place ^ 1])
        elif peer is not None:
            part = empty(arrays[place], arrays[place].shape)
            messages.receive(part, peer, place ^ 1)
        come.append(part)
    messages.wait()
    return come[::-1]


def check(array: Array, widths: Sequence[int]) -> None:
    """Refuse an array that is too small for such halos.

    Raises:
        ValueError: It is.
    """
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


def number_of(step: Sequence[int]) -> int:
    """Return a number for a direction."""
    number = 0
    for one in step:
        number = 3 * number + one + 1
    return number
