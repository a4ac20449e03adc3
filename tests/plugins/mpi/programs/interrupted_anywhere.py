"""A rank that is interrupted at any function on its way to MPI's call leaves nobody in it, whichever rank comes first.

Python looks for signals where a function begins. So rank 0 is stopped at the first such place, then at the second, and
so on, until it has come through where rank 1 is there already; rank 1 makes the same call, and must end it or be told.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import numpy as np
from mpi4py import MPI

import rankwise as dist

#: Where a call of the group is; what is below does not know of meetings.
PLACES = ("/rankwise_mpi/collectives/", "/rankwise_mpi/group/endpoint.py", "/rankwise_mpi/process/waiting.py")
MOST_PLACES = 24

dist.init_process_group("mpi", timeout=10)
rank = dist.get_rank()


class Interrupt:
    """Raises KeyboardInterrupt at the n-th function that begins in this thread in our files."""

    def __init__(self, place: int) -> None:
        self.left = place

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and any(place in frame.f_code.co_filename for place in PLACES):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def interrupted(place: int, call: Callable[[], object]) -> bool:
    """Make a call that is interrupted at a place; tell whether it came through before."""
    sys.settrace(Interrupt(place))
    try:
        call()
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(None)
    return True


def try_all(make: Callable[[dist.ProcessGroup], Callable[[], object]], late: int) -> int:
    """Try place after place, where one rank comes late; return how many there are, or have been tried."""
    for place in range(1, MOST_PLACES):
        group = dist.new_group([0, 1])
        call = make(group)
        call()
        through = np.zeros(1, np.int32)
        MPI.COMM_WORLD.Barrier()
        if late == rank == 0:
            threading.Event().wait(0.02)  # mostly enough for the other to be there
        if late == rank == 1:
            MPI.COMM_WORLD.Recv(through, 0)
        if rank == 0:
            through[0] = interrupted(place, call)
            if late == 1:
                MPI.COMM_WORLD.Send(through, 1)
            dist.abort_process_group(group)
        else:
            with suppress(dist.GroupAbortedError):
                call()
        MPI.COMM_WORLD.Bcast(through, 0)
        if through[0]:
            return place
    return MOST_PLACES


if __name__ == "__main__":
    array = np.ones(1000, np.int64)
    calls: list[Callable[[dist.ProcessGroup], Callable[[], object]]] = [
        lambda group: lambda: dist.all_reduce(array, dist.ReduceOp.BOR, group),
        lambda group: lambda: dist.all_gather_into_tensor(np.empty(2000, np.int64), array, group),
    ]
    for make in calls:
        assert try_all(make, late=0) < MOST_PLACES
        assert try_all(make, late=1) == MOST_PLACES  # who comes first waits, and looks again and again
    dist.destroy_process_group()
    print("fine", flush=True)
