"""Running sums over numbers that are divided among the ranks."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
numbers = np.arange(1, 101)
lengths = [len(part) for part in np.array_split(numbers, comm.size)]
sums = np.empty(lengths[comm.rank], numbers.dtype)
comm.Scatterv([numbers, lengths] if comm.rank == 0 else None, sums)
sums = np.cumsum(sums)
sums += comm.scan(sums[-1]) - sums[-1]
whole = np.empty_like(numbers)
comm.Gatherv(sums, [whole, lengths] if comm.rank == 0 else None)
if comm.rank == 0:
    assert (whole == np.cumsum(numbers)).all()
    print("right: the last is", whole[-1])
