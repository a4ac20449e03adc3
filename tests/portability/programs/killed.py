"""Rank 1 is killed while rank 0 waits for it, who has something to say before it is stopped."""

import os
import signal

import numpy as np

import rankwise as dist

signal.signal(signal.SIGTERM, signal.SIG_IGN)
dist.init_process_group("gloo", timeout=20)
dist.barrier()
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    dist.all_reduce(np.ones(3))
except dist.PeerDiedError as error:
    print(error.rank, type(error).__name__, flush=True)
