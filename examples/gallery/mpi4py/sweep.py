"""A function of two parameters at all points of a grid, by whichever rank is free."""

import numpy as np
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor

comm = MPI.COMM_WORLD


def height(point):
    """Return the height at a point."""
    x, y = point
    return np.sin(3 * x) * np.cos(2 * y) + 0.1 * x


def heights(points):
    """Return the heights at all points, to rank 0."""
    with MPICommExecutor(comm) as executor:
        return [] if executor is None else [*executor.map(height, points, chunksize=9)]


if __name__ == "__main__":
    points = [(float(x), float(y)) for x in np.linspace(0, 2, 9) for y in np.linspace(0, 2, 9)]
    found = heights(points)
    if comm.rank == 0:
        assert found == [height(point) for point in points]
        print("right: the highest is at", points[int(np.argmax(found))])
