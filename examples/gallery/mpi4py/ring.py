"""All pairs of particles, of which each rank has some: guests go around a ring of ranks."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


def distances(mine):
    """Return for each of this rank's particles how far it is from all particles together."""
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    guests, sums = mine.copy(), np.zeros(len(mine))
    for _ in range(comm.size):
        sums += np.linalg.norm(mine[:, None] - guests, axis=2).sum(1)
        comm.Sendrecv_replace(guests, after, source=before)
    return sums


if __name__ == "__main__":
    everyone = np.random.default_rng(8).random((comm.size, 20, 3))
    mine = everyone[comm.rank]
    apart = np.linalg.norm(mine[:, None] - everyone.reshape(-1, 3), axis=2)
    assert np.allclose(distances(mine), apart.sum(1))
    if comm.rank == 0:
        print("right: the distances of", everyone.size // 3, "particles")
