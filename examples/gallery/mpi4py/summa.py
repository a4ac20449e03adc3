"""A product of matrices, of which each rank has a block: panels travel along rows and columns of a grid."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


def product(first, second):
    """Return this rank's block of the product of two square matrices, and its place; each rank takes its blocks."""
    grid = comm.Create_cart(MPI.Compute_dims(comm.size, 2))
    (high, wide), row, column = grid.dims, grid.Sub([False, True]), grid.Sub([True, False])
    size = len(first) // (high * wide)  # of a panel
    axes = zip(grid.coords, (high, wide), first.shape, strict=True)
    place = tuple(slice(at * n // parts, (at + 1) * n // parts) for at, parts, n in axes)
    a, b, c = first[place], second[place], 0
    left, right = np.empty((len(a), size)), np.empty((size, b.shape[1]))
    for panel in range(high * wide):
        (i, at), (j, there) = divmod(panel, high), divmod(panel, wide)
        if row.rank == i:
            left[:] = a[:, size * at : size * (at + 1)]
        if column.rank == j:
            right[:] = b[size * there : size * (there + 1)]
        row.Bcast(left, i)
        column.Bcast(right, j)
        c += left @ right
    return c, place


if __name__ == "__main__":
    n = 4 * comm.size
    first, second = np.random.default_rng(3).random((2, n, n))
    block, place = product(first, second)
    assert np.allclose(block, (first @ second)[place])
    if comm.rank == 0:
        print("right: a product of", n, "x", n)
