"""Show what each collective moves where: rank r begins with numbers that start with the digit r.

    rankwise run -n 3 collectives.py
    mpiexec -n 3 python collectives.py mpi

Each line shows what a rank has before and after the call; what it should have is computed beside it, and compared.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import rankwise as dist


def show(name: str, before: Any, after: Any, expected: Any) -> None:
    """Print, rank by rank in order, what each had before a call and has after it; stop if that is wrong."""
    if plain(after) != plain(expected):
        raise SystemExit(f"rank {dist.get_rank()}: {name}: {plain(after)} instead of {plain(expected)}")
    lines: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(lines, f"  rank {dist.get_rank()}: {plain(before):32} -> {plain(after)}")
    if dist.get_rank() == 0:
        print(f"{name}\n" + "\n".join(lines), flush=True)


def plain(value: Any) -> str:
    """Write arrays as short lists, and a dash for what a rank does not have."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return "  ".join(plain(part) for part in value)
    return str(np.asarray(value).astype(int).tolist())


def main() -> None:
    """Call each collective once, with rank 0 as the root."""
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    root = rank == 0
    mine = np.array([10.0 * rank, 10.0 * rank + 1])
    all_of_them = [np.array([10.0 * r, 10.0 * r + 1]) for r in range(size)]

    def parts() -> list[np.ndarray]:
        return [np.zeros(2) for _ in range(size)]

    array = mine.copy()
    dist.broadcast(array, src=0)
    show("broadcast: everyone gets what the root has", mine, array, all_of_them[0])

    array = mine.copy()
    dist.all_reduce(array)
    show("all_reduce: everyone gets the sum", mine, array, sum(all_of_them))

    array = mine.copy()
    dist.reduce(array, dst=0, op=dist.ReduceOp.MAX)
    maximum = array if root else None
    show("reduce: the root gets the maximum", mine, maximum, all_of_them[-1] if root else None)

    gathered = parts()
    dist.all_gather(gathered, mine)
    show("all_gather: everyone gets what all have", mine, gathered, all_of_them)

    collected = parts() if root else None
    dist.gather(mine, collected, dst=0)
    show("gather: the root gets what all have", mine, collected, all_of_them if root else None)

    pieces = [np.array([float(r), r + 0.0]) for r in range(size)] if root else None
    array = np.zeros(2)
    dist.scatter(array, pieces, src=0)
    show("scatter: each gets its piece from the root", pieces, array, np.array([rank, rank]))

    pieces = [mine + 100 * r for r in range(size)]
    array = np.zeros(2)
    dist.reduce_scatter(array, pieces)
    show("reduce_scatter: each gets the sum of its pieces", pieces, array, sum(p + 100 * rank for p in all_of_them))

    received = parts()
    dist.all_to_all(received, pieces)
    show("all_to_all: each gets its piece from each", pieces, received, [p + 100 * rank for p in all_of_them])

    dist.barrier()
    if root:
        print("barrier: nobody goes on before all are there")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
