"""One rank gives up at the very moment at which the other comes: both go on, or neither does, and nobody waits."""

from __future__ import annotations

import random
import time

import numpy as np
from mpi4py import MPI

import rankwise as dist

TIMEOUT_S, TRIALS = 0.02, 60

dist.init_process_group("mpi", timeout=30)
rank = dist.get_rank()
chance = random.Random(7)


def comes(group: object, delay_s: float) -> bool:
    """Come after a while, and tell whether the others came too."""
    MPI.COMM_WORLD.Barrier()
    array = np.ones(50_000)
    until = time.perf_counter() + (delay_s if rank == 1 else 0)
    while time.perf_counter() < until:
        pass
    try:
        dist.all_reduce(array, group=group, timeout=TIMEOUT_S)
    except (dist.DistTimeoutError, dist.GroupAbortedError):
        return False
    assert (array == dist.get_world_size()).all()
    return True


endings = set()
for _ in range(TRIALS):
    one = dist.new_group([0, 1])
    delay_s = TIMEOUT_S + chance.uniform(-0.001, 0.005)
    came = np.array([comes(one, delay_s)], np.int32)
    least, most = came.copy(), came.copy()
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, least, MPI.MIN)
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
    assert least[0] == most[0], f"after {delay_s * 1e3:.3f} ms one rank went on, the other did not"
    endings.add(bool(came[0]))
    if came[0]:
        dist.destroy_process_group(one)
assert endings == {True, False}, f"all trials ended alike ({endings}): they say nothing"
dist.destroy_process_group()
print("fine", flush=True)
