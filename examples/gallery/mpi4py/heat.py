"""Heat that spreads over a plate, of which each rank has a block with a halo."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


def step(plate):
    """Let heat spread to all places but the rim."""
    beside = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
    plate[1:-1, 1:-1] += 0.2 * (beside - 4 * plate[1:-1, 1:-1])


def heat(plate, steps):
    """Return this rank's block of a plate after some steps, and its place; around the plate it is cold."""
    shape = MPI.Compute_dims(comm.size, 2)
    grid = comm.Create_cart(shape)
    axes = zip(grid.coords, shape, plate.shape, strict=True)
    place = tuple(slice(at * length // parts, (at + 1) * length // parts) for at, parts, length in axes)
    block = np.pad(plate[place], 1)
    (above, below), (before, after) = grid.Shift(0, 1), grid.Shift(1, 1)
    flat, wide = block.reshape(-1), block.shape[1]
    column = MPI.DOUBLE.Create_vector(len(block) - 2, 1, wide).Commit()
    for _ in range(steps):
        grid.Sendrecv(block[1], above, recvbuf=block[-1], source=below)
        grid.Sendrecv(block[-2], below, recvbuf=block[0], source=above)
        grid.Sendrecv([flat[wide + 1 :], 1, column], before, recvbuf=[flat[2 * wide - 1 :], 1, column], source=after)
        grid.Sendrecv([flat[2 * wide - 2 :], 1, column], after, recvbuf=[flat[wide:], 1, column], source=before)
        step(block)
    return block[1:-1, 1:-1], place


if __name__ == "__main__":
    plate = np.random.default_rng(1).random((24, 24))
    block, place = heat(plate, 50)
    alone = np.pad(plate, 1)
    for _ in range(50):
        step(alone)
    assert np.allclose(block, alone[1:-1, 1:-1][place])
    if comm.rank == 0:
        print("right:", alone.sum().round(3))
