"""Clusters of points that are divided among the ranks: only sums travel."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional


def moved(centres, points, total):
    """Return the means of the points nearest to each centre, whose sums are made by a function of the parts."""
    nearest = ((points[:, None] - centres) ** 2).sum(2).argmin(1)
    ones = np.column_stack([points, np.ones(len(points))])
    sums = total(np.eye(len(centres))[nearest].T @ ones)
    return sums[:, :-1] / np.maximum(sums[:, -1:], 1)


def kmeans(points, centres, steps):
    """Return the centres after some steps, of the points that rank 0 has."""
    mine = functional.scatter(points)
    for _ in range(steps):
        centres = moved(centres, mine, functional.all_reduce)
    return centres


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        random = np.random.default_rng(7)
        points = random.normal(10 * random.integers(0, 4, (4000, 2)), 1)
        centres, alone = kmeans(points, points[:4], 15), points[:4]
        for _ in range(15):
            alone = moved(alone, points, lambda sums: sums)
        assert np.allclose(centres, alone)
        if world.rank() == 0:
            print("right:", centres.round(1).tolist())
