"""The least that a program does; with an argument it claims to be that rank."""

from __future__ import annotations

import sys

import numpy as np

import rankwise as dist

dist.init_process_group("mpi", timeout=20, rank=int(sys.argv[1]) if len(sys.argv) > 1 else -1)
array = np.ones(4)
dist.all_reduce(array)
assert (array == dist.get_world_size()).all()
dist.monitored_barrier(timeout=20)
dist.destroy_process_group()
print("fine", flush=True)
