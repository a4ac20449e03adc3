"""Every rank takes part in one all_reduce, and says where it runs and when it was done; the argument is its backend."""

import os
import socket
import sys
import time

import numpy as np

began = time.time()

import rankwise as dist  # noqa: E402

dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo", timeout=60)
array = np.full(1000, dist.get_rank() + 1.0)
dist.all_reduce(array)
done = time.time()
size = dist.get_world_size()
assert array[0] == size * (size + 1) / 2, array[0]
node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
attempt = os.environ.get("SLURM_RESTART_COUNT", "0")
print(f"rank {dist.get_rank()} of {size} on {node} attempt {attempt} began {began} done {done}", flush=True)
dist.destroy_process_group()
