"""Heat that spreads over a plate, of which each rank has a block with a halo."""

import numpy as np
from mpi4py import MPI


def step(plate):
    beside = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
    plate[1:-1, 1:-1] += 0.2 * (beside - 4 * plate[1:-1, 1:-1])


comm = MPI.COMM_WORLD
plate = np.pad(np.random.default_rng(1).random((24, 24)), 1)  # its rim stays cold
shape = MPI.Compute_dims(comm.size, 2)
grid = comm.Create_cart(shape)
(top, left), (rows, columns) = (np.multiply(grid.coords, 24) // shape, np.floor_divide(24, shape))
block = plate[top : top + rows + 2, left : left + columns + 2].copy()
(above, below), (before, after) = grid.Shift(0, 1), grid.Shift(1, 1)
column = np.empty(rows)
for _ in range(50):
    grid.Sendrecv(block[1, 1:-1], above, recvbuf=block[-1, 1:-1], source=below)
    grid.Sendrecv(block[-2, 1:-1], below, recvbuf=block[0, 1:-1], source=above)
    grid.Sendrecv(block[1:-1, 1].copy(), before, recvbuf=column, source=after)
    if after != MPI.PROC_NULL:
        block[1:-1, -1] = column
    grid.Sendrecv(block[1:-1, -2].copy(), after, recvbuf=column, source=before)
    if before != MPI.PROC_NULL:
        block[1:-1, 0] = column
    step(block)
    step(plate)
assert np.allclose(block[1:-1, 1:-1], plate[1:-1, 1:-1][top : top + rows, left : left + columns])
if comm.rank == 0:
    print("right:", plate.sum().round(3))
