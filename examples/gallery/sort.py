"""Numbers that no rank could hold alone, sorted by samples: each rank gets a range of values."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional


def sort(mine):
    """Return this rank's range of all ranks' numbers, in order."""
    mine, size = np.sort(mine), dist.get_world_size()
    samples = np.sort(functional.all_gather(mine[:: len(mine) // size][:size], axis=0))
    parts = np.split(mine, np.searchsorted(mine, samples[size::size]))
    ordered = functional.all_to_all(parts, concat_axis=0)
    ordered.sort()
    return ordered


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        mine = np.random.default_rng(world.rank()).random(1000 + 10 * world.rank())
        before, after = functional.gather(mine, axis=0), functional.gather(sort(mine), axis=0)
        if world.rank() == 0:
            assert (np.sort(before) == after).all()
            print("right:", len(after), "numbers in order")
