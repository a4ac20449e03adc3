"""A rank that is interrupted wherever it may be in a collective ends its group, and nobody stands still afterwards."""

from __future__ import annotations

import itertools
import random
import signal
from contextlib import suppress

import numpy as np
from mpi4py import MPI

import rankwise as dist

TRIALS, LATEST_S = 12, 0.004
SIZES = (1, 2_000, 60_000)

dist.init_process_group("mpi", timeout=20)
rank = dist.get_rank()
chance = random.Random(7)
signal.signal(signal.SIGALRM, signal.default_int_handler)


def call(group: dist.ProcessGroup, array: np.ndarray, op: str) -> None:
    if op == "all_reduce":
        # An op of MPI's own: what a handler raises within one of ours, which MPI calls, ends the job.
        dist.all_reduce(array, dist.ReduceOp.BOR, group)
    elif op == "broadcast":
        dist.broadcast(array, 0, group)
    elif rank == 0:
        dist.send(array, 1, group)
        dist.recv(array, 1, group)
    else:
        dist.recv(array, 0, group)
        dist.send(array, 0, group)


def call_until_interrupted(group: dist.ProcessGroup, array: np.ndarray, op: str, after_s: float) -> None:
    """Call again and again; rank 0 is interrupted after a while, and gives the group up."""
    with suppress(KeyboardInterrupt if rank == 0 else dist.GroupAbortedError):
        if rank == 0:
            # Again after a while, as an exception in a finalizer is ignored.
            signal.setitimer(signal.ITIMER_REAL, after_s, 0.2)
        for _ in itertools.count():
            call(group, array, op)
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0)
        # Where it came between two calls, the group is whole.
        dist.abort_process_group(group)


for _ in range(TRIALS):
    group = dist.new_group([0, 1])
    array = np.ones(chance.choice(SIZES), np.int64)
    op, after_s = chance.choice(("all_reduce", "broadcast", "messages")), chance.uniform(0.0002, LATEST_S)
    MPI.COMM_WORLD.Barrier()
    call_until_interrupted(group, array, op, after_s)
array = np.ones(3)
dist.all_reduce(array)
assert array.tolist() == [2.0] * 3
dist.destroy_process_group()
print("fine", flush=True)
