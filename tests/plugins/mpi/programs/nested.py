"""The callback of a receive that ends while a collective meets the other ranks makes the next one, in its turn."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_mpi.communicator import MpiCommunicator

ROUNDS = 20

dist.init_process_group("mpi", timeout=20)
rank = dist.get_rank()
assert dist.group.WORLD is not None
lane = dist.group.WORLD.lane(np.ones(1), "all_reduce", dist.ReduceOp.SUM)
assert isinstance(lane, MpiCommunicator)
entry = lane.entry
assert entry is not None


def other_has_come(number: int) -> bool:
    return entry._came[0] >= number


def exchange(number: int) -> None:
    outer, inner, called = np.full(100, rank + 1.0), np.full(100, 10.0 * rank), threading.Event()
    if rank == 0:

        def go_on(work: Any) -> None:
            dist.all_reduce(inner)
            called.set()

        message = dist.irecv(np.zeros(3), 1)
        assert message is not None
        message.add_done_callback(go_on)
        dist.all_reduce(outer)
        assert called.wait(20)
    else:
        until = time.monotonic() + 20
        while not other_has_come(number) and time.monotonic() < until:
            time.sleep(0)
        dist.send(np.ones(3), 0)
        dist.all_reduce(outer)
        dist.all_reduce(inner)
    assert (outer == 3).all(), outer
    assert (inner == 10).all(), inner


for i in range(ROUNDS):
    exchange(2 * i + 1)
dist.destroy_process_group()
print("fine", flush=True)
