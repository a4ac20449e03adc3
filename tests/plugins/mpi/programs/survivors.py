"""The last rank is killed in the middle; all others learn who it was, and go on without it."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

import rankwise as dist

dist.init_process_group("mpi", timeout=20)
rank, dead = dist.get_rank(), dist.get_world_size() - 1
assert dist.supports("shrink", "cpu", backend="mpi")
dist.barrier()
word = np.zeros(1)
if rank == dead:
    # MPI may end a barrier in an error if a member dies that has left it, so this one waits until all have left it.
    for other in range(dead):
        dist.recv(word, src=other)
    os.kill(os.getpid(), signal.SIGKILL)


def until_it_fails() -> None:
    dist.send(word, dst=dead)
    for _ in range(1000):
        dist.all_reduce(np.ones(3))


begin = time.monotonic()
with pytest.raises(dist.PeerDiedError) as caught:  # also where another has learned of the death first, and revoked
    until_it_fails()
assert time.monotonic() - begin < 10
assert caught.value.rank == dead, caught.value
smaller = dist.shrink_group([caught.value.rank])
array = np.full(1000, 1.0)
dist.all_reduce(array, group=smaller)
assert (array == dead).all()
print("fine", flush=True)
dist.barrier(smaller)
os._exit(0)  # MPI_Finalize would wait for the dead
