"""Heat that spreads over a plate, of which each rank has a block with a halo."""

import sys

import numpy as np

import rankwise as dist


def step(plate):
    """Let heat spread to all places but the rim."""
    beside = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
    plate[1:-1, 1:-1] += 0.2 * (beside - 4 * plate[1:-1, 1:-1])


def heat(plate, steps):
    """Return this rank's block of a plate after some steps, and its place; around the plate it is cold."""
    grid = dist.grid(2)
    axes = zip(grid.coords, grid.shape, plate.shape, strict=True)
    place = tuple(slice(at * length // parts, (at + 1) * length // parts) for at, parts, length in axes)
    block = np.pad(plate[place], 1)
    for _ in range(steps):
        grid.exchange_halos(block)
        step(block)
    return block[1:-1, 1:-1], place


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        plate = np.random.default_rng(1).random((24, 24))
        block, place = heat(plate, 50)
        alone = np.pad(plate, 1)
        for _ in range(50):
            step(alone)
        assert np.allclose(block, alone[1:-1, 1:-1][place])
        if world.rank() == 0:
            print("right:", alone.sum().round(3))
