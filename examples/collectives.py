"""Show what each collective moves where: rank r begins with numbers that start with the digit r.

    rankwise run -n 3 collectives.py
"""

from __future__ import annotations

import sys

import numpy as np

import rankwise as dist


def show(name: str, before: object, after: object) -> None:
    """Print, rank by rank in order, what each had before a call and has after it."""
    lines: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(lines, f"  rank {dist.get_rank()}: {plain(before):32} -> {plain(after)}")
    if dist.get_rank() == 0:
        print(f"{name}\n" + "\n".join(map(str, lines)), flush=True)


def plain(value: object) -> str:
    """Write arrays as short lists, and nothing for what a rank does not have."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return "  ".join(plain(part) for part in value)
    return str(np.asarray(value).astype(int).tolist())


def main() -> None:
    """Call each collective once, with rank 0 as the root."""
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = np.array([10.0 * rank, 10.0 * rank + 1])

    def parts() -> list[np.ndarray]:
        return [np.zeros(2) for _ in range(size)]

    array = mine.copy()
    dist.broadcast(array, src=0)
    show("broadcast: everyone gets what the root has", mine, array)

    array = mine.copy()
    dist.all_reduce(array)
    show("all_reduce: everyone gets the sum", mine, array)

    array = mine.copy()
    dist.reduce(array, dst=0, op=dist.ReduceOp.MAX)
    show("reduce: the root gets the maximum", mine, array if rank == 0 else None)

    gathered = parts()
    dist.all_gather(gathered, mine)
    show("all_gather: everyone gets what all have", mine, gathered)

    collected = parts() if rank == 0 else None
    dist.gather(mine, collected, dst=0)
    show("gather: the root gets what all have", mine, collected)

    pieces = [np.array([float(r), r + 0.0]) for r in range(size)] if rank == 0 else None
    array = np.zeros(2)
    dist.scatter(array, pieces, src=0)
    show("scatter: each gets its piece from the root", pieces, array)

    pieces = [mine + 100 * r for r in range(size)]
    array = np.zeros(2)
    dist.reduce_scatter(array, pieces)
    show("reduce_scatter: each gets the sum of its pieces", pieces, array)

    received = parts()
    dist.all_to_all(received, pieces)
    show("all_to_all: each gets its piece from each", pieces, received)

    dist.barrier()
    if rank == 0:
        print("barrier: nobody goes on before all are there")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
