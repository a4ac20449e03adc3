"""Say hello from every rank, and add up a number from each.

    rankwise run -n 4 hello.py
    mpiexec -n 4 python hello.py mpi

Under `rankwise run`, torchrun, mpiexec or srun the program is the same.
"""

from __future__ import annotations

import os
import socket
import sys

import numpy as np

import rankwise as dist

dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
rank, size = dist.get_rank(), dist.get_world_size()
print(f"hello from rank {rank} of {size}: process {os.getpid()} on {socket.gethostname()}")

number = np.array([rank + 1.0])
dist.all_reduce(number)
if number[0] != size * (size + 1) / 2:
    raise SystemExit(f"rank {rank}: the sum is wrong: {number[0]:g}")
if rank == 0:
    print(f"1 + ... + {size} = {number[0]:g}, and every rank knows it")
dist.destroy_process_group()
