"""Print what arrays in shared memory save on one host: reductions, an `all_gather`, a table, and what making one costs.

    python benchmarks/shared_arrays.py

Each line alternates between the ways that it compares, and gives the median of each way's rounds, and of the ratios
within a round. A copy is one that all ranks make at the same time, from one array of that kind to another.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pages

import rankwise as dist

MIB = 1 << 20


def seconds(function: Callable[[], object], calls: int) -> float:
    """Return the time of one of several calls on the slowest rank."""
    dist.fence()
    began = time.perf_counter()
    for _ in range(calls):
        function()
    took = np.array([(time.perf_counter() - began) / calls])
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took[0])


def compared(ways: dict[str, Callable[[], object]], calls: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Return of each way the median time, and of its ratios to the first."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, function in ways.items():
            took = seconds(function, calls)
            if number:  # the first round makes what later ones find
                found[name].append(took)
    first = next(iter(found.values()))
    return {
        name: (statistics.median(each), statistics.median(a / b for a, b in zip(each, first, strict=True)))
        for name, each in found.items()
    }


def show(what: str, found: dict[str, tuple[float, float]]) -> None:
    """Print a line."""
    if dist.get_rank() == 0:
        ways = "; ".join(f"{name} {1e6 * took:.1f} us, {ratio:.2f}x" for name, (took, ratio) in found.items())
        print(f"{what}: {ways}", flush=True)


def reductions(rounds: int) -> None:
    """Compare `all_reduce` of shared arrays with copies, of arrays of that kind and of other ones."""
    for mib in (4, 16, 64):
        count, pairs = mib * MIB // 4, max(2, 64 // mib)  # more than the caches hold
        shared = cycle([(dist.shared_zeros(count, "f4"), dist.shared_zeros(count, "f4")) for _ in range(pairs)])
        others = cycle([(np.zeros(count, "f4"), np.zeros(count, "f4")) for _ in range(pairs)])
        ways: dict[str, Callable[[], object]] = {
            "a copy": lambda s=shared: np.copyto(*next(s)),
            "all_reduce": lambda s=shared: dist.all_reduce(next(s)[0]),
            "a copy of private arrays": lambda o=others: np.copyto(*next(o)),
            "all_reduce of these": lambda o=others: dist.all_reduce(next(o)[0]),
        }
        show(f"all_reduce of {mib} MiB, shared", compared(ways, pairs, rounds))


def gathers(rounds: int) -> None:
    """Compare `all_gather` into an array in common with a barrier, and with one into an array of each rank's own."""
    me, size = dist.get_rank(), dist.get_world_size()
    for nbytes in (1024, MIB, 64 * MIB):
        common, own = (
            dist.shared_zeros((size, nbytes // size), "u1", copies="host"),
            np.zeros((size, nbytes // size), "u1"),
        )
        ways = {
            "a barrier": dist.barrier,
            "into an array in common": partial(dist.all_gather_single, common, common[me]),
            "into one's own": partial(dist.all_gather_single, own, own[me]),
        }
        show(f"all_gather, {nbytes} bytes in all", compared(ways, 20, rounds))


def making(rounds: int) -> None:
    """Measure how long it takes to make a small array, and to let it go."""
    show("an array of 8 bytes", compared({"shared_zeros": lambda: dist.shared_zeros(1)}, 20, rounds))


def table(mib: int, rounds: int) -> None:
    """Compare one table for a host with a copy of it by one rank; add up what all ranks have of it in memory."""
    whole = np.ones(mib * MIB, np.uint8) if dist.get_rank() == 0 else None
    kept: list[Any] = [None]

    def copied() -> None:
        kept[0] = None if whole is None else whole.copy()

    def shared() -> None:
        kept[0] = dist.shared_from(whole)

    show(f"{mib} MiB for {dist.get_world_size()} ranks", compared({"a copy": copied, "shared_from": shared}, 1, rounds))
    assert kept[0][:: MIB // 256].all()  # every page has been read on every rank
    dist.fence()
    pss = np.array([pss_mib()])
    dist.all_reduce(pss)
    if dist.get_rank() == 0:
        print(f"  in the memory of all ranks: {pss[0]:.0f} MiB", flush=True)


def pss_mib() -> float:
    """Return this process's share of shared arrays' memory."""
    gc.collect()
    found, here = 0, False
    with open("/proc/self/smaps") as file:
        for line in file:
            here = "rankwise-shared" in line if "-" in line.split()[0] else here
            found += int(line.split()[1]) if here and line.startswith("Pss:") else 0
    return found / 1024


def on_two(rank: int, rounds: int) -> None:
    """Measure what two ranks do."""
    with dist.world("gloo"):
        reductions(rounds)
        gathers(rounds)
        making(rounds)


def on_four(rank: int, mib: int, rounds: int) -> None:
    """Measure what four ranks do."""
    with dist.world("gloo", timeout=120):
        table(mib, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mib", type=int, default=1024, help="the size of the table")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    print(pages.machine())
    dist.spawn(on_two, args=(given.rounds,), nprocs=2)
    dist.spawn(on_four, args=(given.mib, max(3, given.rounds // 3)), nprocs=4)


if __name__ == "__main__":
    main()
