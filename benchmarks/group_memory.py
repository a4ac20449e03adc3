"""Print how much memory a group of gloo takes beyond what its ranks share, for each rank of one host.

    python benchmarks/group_memory.py [--groups 200] [--ranks 2] [--lines]

Rank 0 serves the store as well. `--lines` tells which lines of the source have taken most of it, by `tracemalloc`.
"""

from __future__ import annotations

import argparse
import gc
import re
import tracemalloc
from pathlib import Path

import numpy as np

import rankwise as dist

SMAPS = Path("/proc/self/smaps_rollup")


def own_kib() -> int:
    """Return the memory that no other process can see."""
    gc.collect()
    found = re.search(r"^Anonymous: +(\d+) kB", SMAPS.read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1])


def measure(rank: int, groups: int, lines: bool) -> None:
    """Make the groups on one rank, and print what they have taken."""
    dist.init_process_group("gloo")
    array = np.ones(4)
    kept = [dist.new_group() for _ in range(5)]  # what is loaded for a group is
    dist.all_reduce(array)
    if lines:
        tracemalloc.start()
    before, began = own_kib(), tracemalloc.take_snapshot() if lines else None
    kept += [dist.new_group() for _ in range(groups)]
    took = own_kib() - before
    dist.barrier()
    if began is not None and rank == 0:
        for found in tracemalloc.take_snapshot().compare_to(began, "lineno")[:40]:
            print(f"{found.size_diff / groups:8.0f} B  {found.traceback}")
    elif not lines:
        print(f"rank {rank}: {took / groups:.1f} KiB a group", flush=True)
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=200, help="how many groups; default 200")
    parser.add_argument("--ranks", type=int, default=2, help="how many ranks; default 2")
    parser.add_argument("--lines", action="store_true", help="which lines of the source have taken it")
    given = parser.parse_args()
    dist.spawn(measure, (given.groups, given.lines), nprocs=given.ranks)


if __name__ == "__main__":
    main()
