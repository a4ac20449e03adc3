"""A product of matrices, of which each rank has a block: panels travel along rows and columns of a grid."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional


def product(first, second):
    """Return this rank's block of the product of two square matrices, and its place; each rank takes its blocks."""
    grid = dist.grid(2)
    (high, wide), row, column = grid.shape, grid.sub(1), grid.sub(0)
    size = len(first) // (high * wide)  # of a panel
    axes = zip(grid.coords, (high, wide), first.shape, strict=True)
    place = tuple(slice(at * n // parts, (at + 1) * n // parts) for at, parts, n in axes)
    a, b, c = first[place], second[place], 0
    for panel in range(high * wide):
        (i, at), (j, there) = divmod(panel, high), divmod(panel, wide)
        left = functional.broadcast(a[:, size * at : size * (at + 1)], row.rank_of([i]), row.group)
        right = functional.broadcast(b[size * there : size * (there + 1)], column.rank_of([j]), column.group)
        c += left @ right
    return c, place


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        n = 4 * world.size()
        first, second = np.random.default_rng(3).random((2, n, n))
        block, place = product(first, second)
        assert np.allclose(block, (first @ second)[place])
        if world.rank() == 0:
            print("right: a product of", n, "x", n)
