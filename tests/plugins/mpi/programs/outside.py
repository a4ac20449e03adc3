"""Groups outside of the world, whose members are known by their ranks in MPI, and nothing else."""

import sys

import numpy as np
import pytest
from mpi4py import MPI

import rankwise as dist

rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
store = dist.FileStore(sys.argv[1])


def make(name, mine, **terms):
    return dist.ProcessGroup.create(store=store, rank=mine, name=name, backend="mpi", timeout=30, **terms)


everyone = make("everyone", rank, size=size)
array = np.full(2, rank)
dist.all_reduce(array, group=everyone)
assert array.tolist() == [sum(range(size))] * 2

if rank != 1:
    pair = make("pair", {2: 0, 0: 1}[rank], size=2, ranks=[2, 0])
    dist.broadcast(array, src=2, group=pair)
    gathered = [None, None]
    dist.all_gather_object(gathered, rank, group=pair)
    assert gathered == [2, 0], gathered
    with pytest.raises((ValueError, dist.DistBackendError), match="ranks in MPI as `ranks`"):
        make("wrong", {2: 0, 0: 1}[rank], size=2)
    dist.barrier(pair)
    dist.destroy_process_group(pair)
dist.barrier(everyone)
dist.destroy_process_group(everyone)
store.close()
print("fine")
