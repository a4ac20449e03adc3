"""Windows: memory through which the ranks of a group on one host pass parts of their arrays, one copy in and one out.

A message is copied into memory of the backend and out again, and before and after that where its array has gaps. In a
window a rank writes what others want in the order in which they want it, and they read it where it lies.
"""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

import rankwise as dist
from rankwise.errors import UnsupportedOperationError
from rankwise_arrays.fences import fence
from rankwise_arrays.kinds import Array, Group
from rankwise_arrays.shared.calls import shared_empty

#: How much a rank can write for one meeting. It stays in the caches until the others have read it.
HALF_NBYTES = 1 << 20
#: All ranks of a group meet, so that of many each would wait for others with which it has nothing to do.
_MOST_RANKS = 16

#: The window of each group that has asked for one, None if it has none, and since when: a group that is reconfigured
#: gets another trail, as its members are others.
_windows: WeakKeyDictionary[dist.ProcessGroup, tuple[Any, Window | None]] = WeakKeyDictionary()
_changing = Lock()


class Window:
    """The window of one group.

    Args:
        memory: This rank's part of it.
        group: The group.

    Attributes:
        halves: The two halves of each rank, in the order of ranks.
    """

    def __init__(self, memory: Array, group: Group) -> None:
        ranks = dist.get_process_group_ranks(group)
        parts = [memory.peer(rank).view(np.ndarray) for rank in ranks]
        self.halves = [[part[:HALF_NBYTES] for part in parts], [part[HALF_NBYTES:] for part in parts]]
        self._turn = 0

    def turn(self) -> int:
        """Begin an exchange: return which halves it goes through.

        A rank writes to its own before the ranks meet, and reads those of others afterwards. It can write to the same
        half again in the exchange after the next: all come to the meeting between when they have read.
        """
        self._turn ^= 1
        return self._turn

    def stay(self) -> None:
        """Have the next exchange go through the same halves, which are in the caches.

        All ranks say so at the end of an exchange that has ended with a second meeting, after which each has read
        nothing but its own half.
        """
        self._turn ^= 1


def window_of(group: Group) -> Window | None:
    """Return the window of a group; None if its ranks do not share memory. The first call is made by all ranks.

    Args:
        group: The group; None is the default group.
    """
    found = dist.GroupMember.WORLD if group is None else group
    assert found is not None  # the call before this one would have refused
    known = _windows.get(found)
    if known is None or known[0] is not found.trail:
        known = found.trail, _made(group)
        with _changing:
            _windows[found] = known
    return known[1]


def _made(group: Group) -> Window | None:
    size = dist.get_world_size(group)
    if not 1 < size <= _MOST_RANKS:
        return None
    try:
        memory = shared_empty(2 * HALF_NBYTES, np.uint8, group=group)
    except (MemoryError, UnsupportedOperationError):
        return None  # as on all other ranks
    window = Window(memory, group) if len(memory.peers) == size else None
    fence(group)  # nobody writes before all have their views
    return window
