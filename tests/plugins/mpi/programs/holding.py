"""A group is made within its own time-out, however long rank 0, which keeps the store, holds its interpreter."""

from __future__ import annotations

import ctypes

import numpy as np

import rankwise as dist
from rankwise_mpi.process import store

dist.init_process_group("mpi", timeout=20)
store._OPENING_S = 0.2  # nothing but the group's time-out may end the wait
dist.barrier()
if dist.get_rank() == 0:
    ctypes.PyDLL(None).usleep(2_000_000)
if dist.get_rank() >= 2:
    group = dist.new_group([2, 3], use_local_synchronization=True)
    word = np.ones(1)
    dist.all_reduce(word, group=group)
    assert word == 2
dist.destroy_process_group()
print("fine", flush=True)
