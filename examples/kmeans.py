"""Find clusters in points that no rank has all of: k-means, one small all_reduce for each iteration.

    rankwise run -n 4 kmeans.py
    mpiexec -n 4 python kmeans.py mpi

Every rank assigns its own points and adds them up, cluster by cluster. Only these sums travel: a few hundred bytes,
however many points there are.
"""

from __future__ import annotations

import sys

import numpy as np

import rankwise as dist

CLUSTERS, DIMENSIONS, POINTS, MOST_ITERATIONS = 5, 3, 5_000, 100


def shard(rank: int) -> np.ndarray:
    """Draw the points of a rank; the shards differ in size, as they do in life."""
    random = np.random.default_rng((7, rank))
    centres = np.random.default_rng(7).uniform(-10, 10, (CLUSTERS, DIMENSIONS))
    count = POINTS + 100 * rank
    return centres[random.integers(CLUSTERS, size=count)] + random.standard_normal((count, DIMENSIONS))


def assign(points: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, float]:
    """Return, for each cluster, the sum of its points and their number; and the sum of squared distances."""
    distances = ((points[:, None, :] - centres) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1)
    sums = np.zeros((CLUSTERS, DIMENSIONS + 1))
    np.add.at(sums[:, :-1], nearest, points)
    sums[:, -1] = np.bincount(nearest, minlength=CLUSTERS)
    return sums, float(distances.min(axis=1).sum())


def move(centres: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return the means; a cluster without points stays where it was."""
    counts = sums[:, -1:]
    return np.where(counts > 0, sums[:, :-1] / np.maximum(counts, 1), centres)


def main() -> None:
    """Find the clusters together, then compare them with what one process finds in all the points."""
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    points = shard(rank)

    # Everyone begins with the same centres: those that rank 0 has picked among its points.
    start = points[:CLUSTERS].copy()
    dist.broadcast(start, src=0)

    centres = start
    iterations = 0
    while iterations < MOST_ITERATIONS:
        iterations += 1
        sums, spread = assign(points, centres)
        dist.all_reduce(sums)
        before, centres = centres, move(centres, sums)
        # All have the same sums, bit for bit, so all come to the same decision.
        if np.abs(centres - before).max() < 1e-9:
            break

    total = np.array([spread])
    dist.reduce(total, dst=0)

    alone, everything = start, np.concatenate([shard(r) for r in range(size)])
    for _ in range(iterations):
        alone = move(alone, assign(everything, alone)[0])
    if not np.allclose(centres, alone):
        raise SystemExit(f"rank {rank}: the centres are not those of one process with all points")
    if rank == 0:
        print(f"{len(everything)} points on {size} ranks, {CLUSTERS} clusters after {iterations} iterations")
        print(f"{sums.nbytes} bytes for each all_reduce; mean squared distance {total[0] / len(everything):.3f}")
        print("right: one process finds the same centres in all the points")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
