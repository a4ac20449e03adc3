"""Two ranks go on making a group while the others, rank 0 among them, wait for them in a call of mpi4py."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import rankwise as dist

dist.init_process_group("mpi", timeout=20)
group = dist.new_group([2, 3])
assert MPI.COMM_WORLD.allreduce(1) == 4
if dist.get_rank() >= 2:
    word = np.ones(1)
    dist.all_reduce(word, group=group)
    assert word == 2
dist.destroy_process_group()
print("fine", flush=True)
