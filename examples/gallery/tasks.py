"""Tasks of very different lengths for whichever rank is free."""

import sys

import rankwise as dist


def steps(number):
    """Return how many steps a number takes to 1, by halves and by three times and one."""
    count = 0
    while number != 1:
        number, count = number // 2 if number % 2 == 0 else 3 * number + 1, count + 1
    return count


with dist.world(*sys.argv[1:]), dist.pool() as pool:
    longest = max(pool.map_unordered(steps, range(1, 1000)), default=0)
    if pool.leads:
        assert longest == max(map(steps, range(1, 1000)))
        print("right: the longest takes", longest, "steps")
