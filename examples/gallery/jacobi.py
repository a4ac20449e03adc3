"""A system of equations, of which each rank has some rows, by Jacobi's iteration."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional


def solve(a, b):
    """Return x of `a @ x == b`, of which each rank computes its share until nothing changes on any."""
    rows = dist.share(len(b))
    mine = np.s_[rows.start : rows.stop]
    part, right, diagonal = a[mine], b[mine], a.diagonal()[mine]
    x, change = np.zeros(len(b)), 1.0
    while change > 1e-12:
        more = (right - part @ x) / diagonal
        change = functional.all_reduce(float(np.abs(more).max(initial=0)), dist.ReduceOp.MAX)
        x = functional.all_gather(x[mine] + more, axis=0)
    return x


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        random = np.random.default_rng(2)
        a, b = random.random((50, 50)) + 50 * np.eye(50), random.random(50)
        assert np.allclose(a @ solve(a, b), b)
        if world.rank() == 0:
            print("right: x solves the system")
