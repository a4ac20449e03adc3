"""Running sums over numbers that are divided among the ranks."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional

with dist.world(*sys.argv[1:]) as world:
    numbers = np.arange(1, 101)
    sums = np.cumsum(functional.scatter(numbers if world.rank() == 0 else None))
    sums += functional.scan(sums[-1]) - sums[-1]
    whole = functional.gather(sums, axis=0)
    if world.rank() == 0:
        assert (whole == np.cumsum(numbers)).all()
        print("right: the last is", whole[-1])
