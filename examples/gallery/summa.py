"""A product of matrices, of which each rank has a block: panels travel along rows and columns of a grid."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional

with dist.world(*sys.argv[1:]) as world:
    grid = dist.grid(2)
    (high, wide), row, column = grid.shape, grid.sub(1), grid.sub(0)
    n = 4 * high * wide
    place = np.s_[grid.coords[0] * n // high :, grid.coords[1] * n // wide :]
    first, second = np.random.default_rng(3).random((2, n, n))
    a, b = (whole[place][: n // high, : n // wide] for whole in (first, second))
    c = np.zeros_like(a)
    for panel in range(high * wide):
        (i, at), (j, there) = divmod(panel, high), divmod(panel, wide)
        left = functional.broadcast(a[:, 4 * at : 4 * at + 4], row.rank_of([i]), row.group)
        right = functional.broadcast(b[4 * there : 4 * there + 4], column.rank_of([j]), column.group)
        c += left @ right
    assert np.allclose(c, (first @ second)[place][: n // high, : n // wide])
    if world.rank() == 0:
        print("right: a product of", n, "x", n)
