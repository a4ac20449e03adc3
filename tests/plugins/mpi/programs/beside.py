"""rankwise in a program that uses MPI itself: initialised by the program, or mixed in the middle of calls."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from mpi4py import MPI  # initialises MPI, as most programs do

import rankwise as dist


def main() -> None:
    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
    # A receive of the program's own that would take any message on its communicator.
    wild: Any = np.zeros(4)
    pending = comm.Irecv(wild, MPI.ANY_SOURCE, MPI.ANY_TAG)
    other = comm.Iallreduce(MPI.IN_PLACE, mine := np.full(3, rank))
    dist.init_process_group("mpi", timeout=20)
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    other.Wait()
    assert mine[0] == size * (size - 1) // 2
    for count in (1, 100_000):
        array = np.full(count, rank, np.float64)
        work = dist.all_reduce(array, async_op=True)
        comm.Barrier()
        theirs = comm.allreduce(rank)
        assert work is not None
        work.wait()
        assert (array == theirs).all()
        right, left = (rank + 1) % size, (rank - 1) % size
        got = np.zeros(count)
        works = [dist.irecv(got, left), dist.isend(array, right)]
        for one in works:
            assert one is not None
            one.wait()
        assert (got == theirs).all()
    dist.destroy_process_group()
    assert not pending.Test()
    comm.Isend(np.ones(4), rank, 1)
    pending.Wait()
    assert wild[0] == 1
    comm.Barrier()
    if "finalise" in sys.argv:
        dist.init_process_group("mpi", timeout=20)
        dist.barrier()
        MPI.Finalize()  # before the groups are given back: they must not touch MPI any more
    print("fine", flush=True)


main()
