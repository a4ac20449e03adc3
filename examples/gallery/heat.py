"""Heat that spreads over a plate, of which each rank has a block with a halo."""

import sys

import numpy as np

import rankwise as dist


def step(plate):
    beside = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
    plate[1:-1, 1:-1] += 0.2 * (beside - 4 * plate[1:-1, 1:-1])


with dist.world(*sys.argv[1:]) as world:
    plate = np.pad(np.random.default_rng(1).random((24, 24)), 1)  # its rim stays cold
    grid = dist.grid(2)
    (top, left), (rows, columns) = (np.multiply(grid.coords, 24) // grid.shape, np.floor_divide(24, grid.shape))
    block = plate[top : top + rows + 2, left : left + columns + 2].copy()
    for _ in range(50):
        grid.exchange_halos(block)
        step(block)
        step(plate)
    assert np.allclose(block[1:-1, 1:-1], plate[1:-1, 1:-1][top : top + rows, left : left + columns])
    if world.rank() == 0:
        print("right:", plate.sum().round(3))
