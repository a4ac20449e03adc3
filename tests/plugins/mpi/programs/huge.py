"""Calls on more elements than 31 bits count, with the memory that this takes: some 7 GB on two ranks."""

from __future__ import annotations

import numpy as np

import rankwise as dist

COUNT = (1 << 31) + 9

dist.init_process_group("mpi", timeout=300)
rank = dist.get_rank()
array = np.full(COUNT, rank + 1, np.uint8)
array[-1] = 7 * (rank + 1)
dist.broadcast(array, 1)
assert (array[0], array[(1 << 31) - 1], array[-1]) == (2, 2, 14)

array[:] = rank + 1
dist.all_reduce(array)
assert (array[0], array[1 << 31], array[-1]) == (3, 3, 3)

if rank == 0:
    array[-1] = 9
    dist.send(array, 1)
else:
    array[:] = 0
    dist.recv(array, 0)
    assert (array[0], array[-1]) == (3, 9)
dist.destroy_process_group()
print("fine", flush=True)
