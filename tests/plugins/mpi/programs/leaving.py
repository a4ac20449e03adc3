"""Ways to end a process with live groups; the argument says which."""

from __future__ import annotations

import os
import sys
from typing import Any

how = sys.argv[1]
if how.startswith("own-init"):
    from mpi4py import MPI  # noqa: F401 - initialises MPI

import numpy as np  # noqa: E402

import rankwise as dist  # noqa: E402

dist.init_process_group("mpi", timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()
array: Any = np.ones(4)
dist.all_reduce(array)
group = dist.new_group([0, size - 1])
if how == "no-destroy":
    dist.all_reduce(array, async_op=True)
    dist.barrier(group)  # a rank that has not called yet is told when another's process ends
    print("fine", flush=True)
elif how == "fork":
    child = os.fork()
    if child == 0:
        sys.exit(0)  # runs the exit handlers of a copy of this process
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()
    print("fine", flush=True)
elif how.endswith("raise"):
    if rank == size - 1:
        raise RuntimeError("this rank has had enough")
    dist.all_reduce(array)
elif how == "exit-code":
    if rank == size - 1:
        sys.exit(3)
    dist.all_reduce(np.ones(100_000))
