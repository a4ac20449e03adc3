"""A rank destroys the group before a call that the others wait in; the argument says which call.

With `apart` in the arguments the ranks meet as they do on several hosts.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_mpi.process.process import Process

if "apart" in sys.argv:
    Process.may_share_memory = lambda self, ranks: False  # type: ignore[method-assign]
how = sys.argv[1]
dist.init_process_group("mpi", timeout=40)
rank, size = dist.get_rank(), dist.get_world_size()
group = dist.new_group(list(range(size)))
small: Any = np.ones(4)
for _ in range(3):
    dist.all_reduce(small, group=group)
if rank == size - 1:
    dist.destroy_process_group(group)
else:
    began, said = time.monotonic(), dist.PeerDiedError(-1, "", "")
    try:
        if how == "small":
            dist.all_reduce(small, group=group)
        elif how == "large":
            dist.all_reduce(np.ones(300_000), group=group)
        elif how == "barrier":
            dist.barrier(group)
        else:
            dist.all_reduce(small, group=group, async_op=True).wait()
    except dist.PeerDiedError as error:
        said = error
    assert said.rank == size - 1, said
    assert "it has destroyed the group" in str(said), said
    assert time.monotonic() - began < 20
    assert dist.get_world_size() == size
dist.barrier()  # the others are as they were
dist.destroy_process_group()
print("fine", flush=True)
