"""A function of two parameters at all points of a grid, by whichever rank is free."""

import sys

import numpy as np

import rankwise as dist


def height(point):
    x, y = point
    return np.sin(3 * x) * np.cos(2 * y) + 0.1 * x


with dist.world(*sys.argv[1:]), dist.pool() as pool:
    points = [(float(x), float(y)) for x in np.linspace(0, 2, 9) for y in np.linspace(0, 2, 9)]
    heights = [*pool.map(height, points)]
    if pool.leads:
        assert heights == [height(point) for point in points]
        print("right: the highest is at", points[int(np.argmax(heights))])
