"""Running sums over numbers that are divided among the ranks."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


def running_sums(numbers):
    """Return the running sums of the numbers that rank 0 has, to rank 0."""
    lengths = [len(part) for part in np.array_split(numbers, comm.size)]
    sums = np.empty(lengths[comm.rank], numbers.dtype)
    comm.Scatterv([numbers, lengths] if comm.rank == 0 else None, sums)
    np.cumsum(sums, out=sums)
    sums += comm.scan(sums[-1]) - sums[-1]
    whole = np.empty_like(numbers) if comm.rank == 0 else None
    comm.Gatherv(sums, [whole, lengths] if comm.rank == 0 else None)
    return whole


if __name__ == "__main__":
    numbers = np.arange(1, 101)
    whole = running_sums(numbers)
    if comm.rank == 0:
        assert (whole == np.cumsum(numbers)).all()
        print("right: the last is", whole[-1])
