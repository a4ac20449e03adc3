"""Numbers that no rank could hold alone, sorted by samples: each rank gets a range of values."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


def sort(mine):
    """Return this rank's range of all ranks' numbers, in order."""
    mine, size = np.sort(mine), comm.size
    samples = np.empty(size * size)
    comm.Allgather(mine[:: len(mine) // size][:size].copy(), samples)
    samples.sort()
    counts = np.diff(np.searchsorted(mine, samples[size::size]), prepend=0, append=len(mine))
    come = np.empty_like(counts)
    comm.Alltoall(counts, come)
    ordered = np.empty(come.sum())
    comm.Alltoallv([mine, counts], [ordered, come])
    ordered.sort()
    return ordered


if __name__ == "__main__":
    mine = np.random.default_rng(comm.rank).random(1000 + 10 * comm.rank)
    before, after = comm.gather(mine), comm.gather(sort(mine))
    if comm.rank == 0:
        after = np.concatenate(after)
        assert (np.sort(np.concatenate(before)) == after).all()
        print("right:", len(after), "numbers in order")
