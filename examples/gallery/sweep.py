"""A function of two parameters at all points of a grid, by whichever rank is free."""

import sys

import numpy as np

import rankwise as dist


def height(point):
    """Return the height at a point."""
    x, y = point
    return np.sin(3 * x) * np.cos(2 * y) + 0.1 * x


def heights(points):
    """Return the heights at all points, to rank 0."""
    with dist.pool() as pool:
        return [*pool.map(height, points)]


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        points = [(float(x), float(y)) for x in np.linspace(0, 2, 9) for y in np.linspace(0, 2, 9)]
        found = heights(points)
        if world.rank() == 0:
            assert found == [height(point) for point in points]
            print("right: the highest is at", points[int(np.argmax(found))])
