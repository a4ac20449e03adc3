"""One of three ranks is killed in the middle; the others learn who it was, and go on as two."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

import rankwise as dist

dist.init_process_group("mpi", timeout=20)
rank = dist.get_rank()
assert dist.supports("shrink", "cpu", backend="mpi")
dist.barrier()
word = np.zeros(1)
if rank == 2:
    # MPI may end a barrier in an error if a member dies that has left it, so this one waits until all have left it.
    dist.recv(word, src=0)
    dist.recv(word, src=1)
    os.kill(os.getpid(), signal.SIGKILL)


def until_it_fails() -> None:
    dist.send(word, dst=2)
    for _ in range(1000):
        dist.all_reduce(np.ones(3))


begin = time.monotonic()
with pytest.raises((dist.PeerDiedError, dist.GroupAbortedError)) as caught:
    until_it_fails()
assert time.monotonic() - begin < 10
if isinstance(caught.value, dist.PeerDiedError):
    assert caught.value.rank in (2, -1), caught.value
smaller = dist.shrink_group([2])
array = np.full(1000, float(rank))
dist.all_reduce(array, group=smaller)
assert (array == 1).all()
print("fine", flush=True)
dist.barrier(smaller)
os._exit(0)  # MPI_Finalize would wait for the dead
