"""Tasks of very different lengths for whichever rank is free."""

import sys

import rankwise as dist


def steps(number):
    """Return how many steps a number takes to 1, by halves and by three times and one."""
    count = 0
    while number != 1:
        number, count = number // 2 if number % 2 == 0 else 3 * number + 1, count + 1
    return count


def longest(numbers):
    """Return how many steps the longest of all takes, to rank 0."""
    with dist.pool() as pool:
        return max(pool.map_unordered(steps, numbers), default=0)


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        most = longest(range(1, 1000))
        if world.rank() == 0:
            assert most == max(map(steps, range(1, 1000)))
            print("right: the longest takes", most, "steps")
