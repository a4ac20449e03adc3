"""All pairs of particles, of which each rank has some: guests go around a ring of ranks."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional


def distances(mine):
    """Return for each of this rank's particles how far it is from all particles together."""
    size = dist.get_world_size()
    ring = [(rank, (rank + 1) % size) for rank in range(size)]
    guests, sums = mine, np.zeros(len(mine))
    for _ in ring:
        sums += np.linalg.norm(mine[:, None] - guests, axis=2).sum(1)
        guests = functional.permute(guests, ring)
    return sums


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        everyone = np.random.default_rng(8).random((world.size(), 20, 3))
        mine = everyone[world.rank()]
        apart = np.linalg.norm(mine[:, None] - everyone.reshape(-1, 3), axis=2)
        assert np.allclose(distances(mine), apart.sum(1))
        if world.rank() == 0:
            print("right: the distances of", everyone.size // 3, "particles")
