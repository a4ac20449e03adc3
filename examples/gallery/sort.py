"""Numbers that no rank could hold alone, sorted by samples: each rank gets a range of values."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional

with dist.world(*sys.argv[1:]) as world:
    size = world.size()
    mine = np.sort(np.random.default_rng(world.rank()).random(1000 + 10 * world.rank()))
    samples = np.sort(functional.all_gather(mine[:: len(mine) // size][:size], axis=0))
    parts = np.split(mine, np.searchsorted(mine, samples[size::size]))
    ordered = np.sort(functional.all_to_all(parts, concat_axis=0))
    before, after = functional.gather(mine, axis=0), functional.gather(ordered, axis=0)
    if world.rank() == 0:
        assert (np.sort(before) == after).all()
        print("right:", len(after), "numbers in order")
