"""Two ranks prove that a backend works: run by `rankwise doctor`, once per rank."""

from __future__ import annotations

import sys
import time

import numpy as np

import rankwise as dist

_COUNT = 1 << 17
_REPEATS = 20


def main(backend: str) -> None:
    """All-reduce a known array, check the result, and let rank 0 say how fast it was."""
    dist.init_process_group(backend, timeout=30.0)
    rank, size = dist.get_rank(), dist.get_world_size()
    array = np.empty(_COUNT, np.float64)
    fastest_s = float("inf")
    for _ in range(_REPEATS):
        array[:] = np.arange(_COUNT) + rank
        begin = time.perf_counter()
        dist.all_reduce(array)
        fastest_s = min(fastest_s, time.perf_counter() - begin)
    if not np.array_equal(array, np.arange(_COUNT) * size + sum(range(size))):
        raise SystemExit("the result of all_reduce is wrong")
    dist.destroy_process_group()
    if rank == 0:
        print(f"right, in {fastest_s * 1e6:.0f} us")


if __name__ == "__main__":
    main(sys.argv[1])
