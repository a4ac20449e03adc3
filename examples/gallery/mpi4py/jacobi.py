"""A system of equations, of which each rank has some rows, by Jacobi's iteration."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


def solve(a, b):
    """Return x of `a @ x == b`, of which each rank computes its share until nothing changes on any."""
    counts = [len(part) for part in np.array_split(b, comm.size)]
    begin = sum(counts[: comm.rank])
    mine = np.s_[begin : begin + counts[comm.rank]]
    part, right, diagonal = a[mine], b[mine], a.diagonal()[mine]
    x, change = np.zeros(len(b)), np.ones(1)
    while change[0] > 1e-12:
        more = (right - part @ x) / diagonal
        change[0] = np.abs(more).max(initial=0)
        comm.Allreduce(MPI.IN_PLACE, change, MPI.MAX)
        x[mine] += more
        comm.Allgatherv(MPI.IN_PLACE, [x, counts])
    return x


if __name__ == "__main__":
    random = np.random.default_rng(2)
    a, b = random.random((50, 50)) + 50 * np.eye(50), random.random(50)
    assert np.allclose(a @ solve(a, b), b)
    if comm.rank == 0:
        print("right: x solves the system")
