"""How the ranks of a group make an array that those of a host share: in steps that succeed on all ranks or on none.

They tell each other what they want and on which machine they are. One rank of each host, its head, makes the memory;
the others open it. What is to be in it is filled in, and sealed if it is to stay as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from mmap import PAGESIZE, mmap
from typing import Any, NamedTuple

import rankwise as dist
from rankwise_arrays.fences import fence
from rankwise_arrays.kinds import Group, is_member
from rankwise_arrays.shared import memory
from rankwise_arrays.shared.array import Segment, SharedArray
from rankwise_arrays.shared.forms import Form, described, read_form
from rankwise_arrays.shared.hosts import Company, company, machine
from rankwise_arrays.shared.room import check_room
from rankwise_arrays.shared.spreading import spread
from rankwise_arrays.together import compare, together

#: Returns what this rank wants; None on one that takes what the source has.
Wish = Callable[[], Form | None]


class Source(NamedTuple):
    """What an array is filled with.

    Attributes:
        rank: Who has it.
        held: It, on that rank, once the form has been asked for.
        writeable: Whether the array may be changed later.
    """

    rank: int
    held: Sequence[Any]
    writeable: bool


def make(call: str, wish: Wish, copies: str, group: Group, source: Source | None = None) -> SharedArray:
    """Make a shared array; see `shared_empty`."""
    if not is_member(group):
        raise ValueError(f"{call}: this rank is not in the group")
    ranks = dist.get_process_group_ranks(group)
    told = together(call, partial(_wanted, wish, copies, ranks, source), group)
    compare(call, "ask for the same array", [text for text, _, _ in told], group)
    form = wish() if source is None else read_form(*told[ranks.index(source.rank)][2])
    assert form is not None
    maker = _Maker(form, copies, company([where for _, where, _ in told], group, source and source.rank))
    try:
        places = together(call, maker.create, group)
        together(call, partial(maker.open, places[ranks.index(maker.company.head)]), group)
        return maker.array() if source is None else maker.filled(source)
    finally:
        maker.close()


def _wanted(wish: Wish, copies: str, ranks: Sequence[int], source: Source | None) -> list[Any]:
    """Return what must be the same on all ranks, as a text; the machine; and the form, on a rank that has one."""
    memory.available()
    if copies not in ("rank", "host"):
        raise ValueError(f"copies={copies!r}; there are 'rank' and 'host'")
    if source is not None and source.rank not in ranks:
        raise ValueError(f"rank {source.rank} is not in the group")
    form = wish()
    told = f"{form}" if source is None else f"from rank {source.rank}, {'' if source.writeable else 'not '}writeable"
    return [f"{told}, copies={copies!r}", machine(), None if form is None or source is None else described(form)]


class _Maker:
    """Makes the memory of one array on this rank's host."""

    def __init__(self, form: Form, copies: str, who: Company) -> None:
        self.company, self._form = who, form
        self._places = {rank: place if copies == "rank" else 0 for place, rank in enumerate(who.ranks)}
        self._blocks = 1 + max(self._places.values())
        page = memory.HUGE_PAGE if form.nbytes >= memory.HUGE_FROM_NBYTES else PAGESIZE
        # More than the array takes, so that an address at its end is not the beginning of another's.
        self._stride = (form.nbytes // page + 1) * page
        self._held, self._place = -1, memory.Place(0, 0, 0)
        self._memory: mmap | None = None

    def create(self) -> list[int] | None:
        """Make the memory, on the head of a host, and return where it is."""
        if self.company.rank != self.company.head:
            return None
        check_room(self._blocks * self._form.nbytes, f"{self._blocks} x {self._form}")
        self._held = memory.create(self._blocks * self._stride)
        return [*memory.place_of(self._held)]

    def open(self, place: Sequence[int]) -> None:
        """Open the memory, and have this rank's part of it there."""
        self._place = memory.Place(*place)
        if self._held < 0:
            self._held = memory.open_place(self._place)
        self._memory = memory.map_memory(self._held, self._blocks * self._stride)
        if self._blocks > 1 or self.company.rank == self.company.head:
            begin = self._places[self.company.rank] * self._stride
            memory.populate(self._memory, self._held, begin, self._form.nbytes)

    def array(self) -> SharedArray:
        """Return this rank's array."""
        segment = self._segment()
        segment.note(self._place.inode)
        return segment.array(self.company.rank, *self._form)

    def filled(self, source: Source) -> SharedArray:
        """Return this rank's array, filled with what the source has."""
        segment, who = self._segment(), self.company
        mine = segment.array(who.rank, *self._form)
        spread(source.held[0] if source.held else None, mine, segment.array(who.head, *self._form), who)
        if source.writeable:
            fence(who.group)
            return self.array()
        del mine, segment
        return self._sealed()

    def close(self) -> None:
        """Let go of what the others had to open; the memory stays with those that see it."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def _segment(self) -> Segment:
        assert self._memory is not None
        return Segment(self._memory, self._stride, self._places)

    def _sealed(self) -> SharedArray:
        """Let go of the memory as something that can be written to, on all ranks, and seal it."""
        only_read = memory.open_place(self._place, writeable=False)
        try:
            self._memory = memory.map_memory(only_read, self._blocks * self._stride, writeable=False)
        finally:
            os.close(only_read)
        fence(self.company.group)
        if self.company.rank == self.company.head:
            memory.freeze(self._held)
        fence(self.company.group)
        return self.array()
