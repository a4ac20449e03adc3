"""A system of equations, of which each rank has some rows, by Jacobi's iteration."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional

with dist.world(*sys.argv[1:]) as world:
    random = np.random.default_rng(2)
    whole, right = random.random((50, 50)) + 50 * np.eye(50), random.random(50)
    rows = np.array(dist.share(50))
    diagonal, x, change = whole[rows, rows], np.zeros(50), 1.0
    while change > 1e-12:
        mine = x[rows] + (right[rows] - whole[rows] @ x) / diagonal
        change = functional.all_reduce(float(np.abs(mine - x[rows]).max(initial=0)), dist.ReduceOp.MAX)
        x = functional.all_gather(mine, axis=0)
    assert np.allclose(whole @ x, right)
    if world.rank() == 0:
        print("right: x solves the system")
