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


def comes(delay_s: float, timeout_s: float) -> bool:
    """Let rank 1 come after a while; tell whether all went on, and fail unless all or none did."""
    group = dist.new_group([0, 1])
    MPI.COMM_WORLD.Barrier()
    array = np.ones(50_000)
    until = time.perf_counter() + (delay_s if rank == 1 else 0)
    while time.perf_counter() < until:
        pass
    went = np.ones(1, np.int32)
    try:
        dist.all_reduce(array, group=group, timeout=timeout_s)
        assert (array == dist.get_world_size()).all()
    except dist.DistError:
        went[0] = 0
    count = np.zeros(1, np.int32)
    MPI.COMM_WORLD.Allreduce(went, count)
    assert count[0] in (0, 2), f"after {delay_s * 1e3:.3f} ms rank {rank} went on: {bool(went[0])}, the other did not"
    if went[0]:
        dist.destroy_process_group(group)
    return bool(went[0])


assert comes(0.0, 20.0)
assert not comes(0.6, TIMEOUT_S)
for _ in range(TRIALS):
    comes(TIMEOUT_S + chance.uniform(-0.001, 0.005), TIMEOUT_S)
dist.destroy_process_group()
print("fine", flush=True)
