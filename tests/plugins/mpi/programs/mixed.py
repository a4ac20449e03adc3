"""Each rank makes each collective synchronously or asynchronously as it likes, and they meet all the same.

With `apart` in the arguments the ranks meet as they do on several hosts.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_mpi.process.process import Process

CALLS, MOST_PENDING = 600, 12
COUNTS = (0, 1, 100, 1_000, 40_000)

if "apart" in sys.argv:
    Process.may_share_memory = lambda self, ranks: False  # type: ignore[method-assign]

dist.init_process_group("mpi", timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
common, own = random.Random(7), random.Random(rank)


def call(number: int, waits: bool) -> tuple[Any, Callable[[], None]]:
    """Make a collective that all ranks draw alike; return its work, and what raises if the result is wrong."""
    op, count = common.choice(("all_reduce", "reduce", "broadcast")), common.choice(COUNTS)
    root = common.randrange(size)
    array = np.full(count, rank + number, np.float64)
    total = np.full(count, number * size + size * (size - 1) // 2, np.float64)
    if op == "all_reduce":
        work, wanted = dist.all_reduce(array, async_op=not waits), total
    elif op == "reduce":
        work, wanted = dist.reduce(array, root, async_op=not waits), total if rank == root else array.copy()
    else:
        work, wanted = dist.broadcast(array, root, async_op=not waits), np.full(count, root + number, np.float64)

    def check() -> None:
        assert (array == wanted).all(), f"{op} {number} of {count}: {array}"

    return work, check


def end(work: Any, check: Callable[[], None]) -> None:
    if work is not None:
        work.wait()
    check()


pending: list[tuple[Any, Callable[[], None]]] = []
for number in range(CALLS):
    # Now all ranks wait, now each does as it likes, now one of them hardly ever waits.
    share = (1.0, 0.5, 0.1 if rank == 0 else 0.9)[number // 50 % 3]
    pending.append(call(number, own.random() < share))
    while len(pending) > own.randrange(MOST_PENDING):
        end(*pending.pop(0))
for each in pending:
    end(*each)
dist.destroy_process_group()
print("fine", flush=True)
