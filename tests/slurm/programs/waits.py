"""Ranks meet, say so, and wait in an all_reduce for the last one, which never comes: each says how that ended."""

import os
import signal
import sys
import threading
import time

import numpy as np

import rankwise as dist

dist.init_process_group("gloo", timeout=600)
rank, size = dist.get_rank(), dist.get_world_size()
dist.barrier()
print(f"rank {rank} waits on {os.environ['SLURMD_NODENAME']}", flush=True)
if rank == size - 1:
    if "dies" in sys.argv:
        print(f"died at {time.time()}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait(600)
try:
    dist.all_reduce(np.ones(4))
except dist.DistError as error:
    print(f"rank {rank} was told at {time.time()}: {type(error).__name__}: {error}", flush=True)
    raise SystemExit(7) from None
