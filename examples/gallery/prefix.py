"""Running sums over numbers that are divided among the ranks."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional


def running_sums(numbers):
    """Return the running sums of the numbers that rank 0 has, to rank 0."""
    sums = functional.scatter(numbers)
    np.cumsum(sums, out=sums)
    sums += functional.scan(sums[-1]) - sums[-1]
    return functional.gather(sums, axis=0)


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        numbers = np.arange(1, 101)
        whole = running_sums(numbers)
        if world.rank() == 0:
            assert (whole == np.cumsum(numbers)).all()
            print("right: the last is", whole[-1])
