"""All pairs of particles, of which each rank has some: guests go around a ring of ranks."""

import sys

import numpy as np

import rankwise as dist

with dist.world(*sys.argv[1:]) as world:
    by, to = dist.grid([world.size()], periodic=True).shift(0)
    everyone = np.random.default_rng(8).random((world.size(), 20, 3))
    mine = everyone[world.rank()]
    guests, distances = mine.copy(), np.zeros(20)
    for _ in range(world.size()):
        distances += np.linalg.norm(mine[:, None] - guests, axis=2).sum(1)
        come = np.empty_like(guests)
        dist.sendrecv(guests, to, come, by)
        guests = come
    assert np.allclose(distances, np.linalg.norm(mine[:, None] - everyone.reshape(-1, 3), axis=2).sum(1))
    if world.rank() == 0:
        print("right: the distances of", everyone.size // 3, "particles")
