"""How long rankwise-dask takes: python benchmarks/dask_run.py [--runs 100] [--pairs 20]

Until all ranks run after `run` on a warm cluster of four one-threaded workers; until a killed worker is told; pairs of
gangs in opposite orders; and what many runs leave behind.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import threading
import time
from typing import Any

from distributed import Client

import rankwise as dist
import rankwise_dask


def begins(group: dist.ProcessGroup) -> float:
    """Tell when the rank ran."""
    return time.time()


def dies(group: dist.ProcessGroup) -> None:
    """Let rank 1 die, and the others wait for it."""
    dist.barrier(group=group)
    if dist.get_rank(group) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier(group=group)


def pair(group: dist.ProcessGroup) -> int:
    """Meet the others of a gang."""
    dist.barrier(group=group)
    return dist.get_rank(group)


def inside() -> tuple[int, int, int]:
    """Return a worker's threads, descriptors and resident KiB."""
    with open("/proc/self/status") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    return threading.active_count(), len(os.listdir("/proc/self/fd")), resident


def measured(client: Client, runs: int, pairs: int) -> None:
    """Print the figures."""
    times = []
    for turn in range(runs + 5):
        if turn == 5:
            before = client.run(inside)
        asked = time.time()
        times.append(max(rankwise_dask.run(client, begins)) - asked)
    after = client.run(inside)
    warm = sorted(times[5:])
    print(
        f"first run: {times[0]:.3f} s until all ranks run; {runs} warm ones: median {statistics.median(warm):.3f} s, ",
        end="",
    )
    print(f"best {warm[0]:.3f} s, 90 % within {warm[int(0.9 * len(warm))]:.3f} s")
    print("threads, descriptors and KiB more on each worker after them:", *_more(before, after))
    workers = list(before)
    began = time.time()
    for _ in range(pairs):
        gangs = [rankwise_dask.start(client, pair, workers=order) for order in (workers, workers[::-1])]
        assert all(gang.result(60) == [0, 1, 2, 3] for gang in gangs)
    print(f"{pairs} pairs of gangs in opposite orders: {time.time() - began:.1f} s")
    asked = time.time()
    try:
        rankwise_dask.run(client, dies)
    except dist.PeerDiedError as error:
        print(f"a killed worker: told after {time.time() - asked:.2f} s with the run, as {error}")


def _more(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[int, ...]]:
    return [tuple(b - a for a, b in zip(before[worker], after[worker], strict=True)) for worker in before]


def main() -> int:
    """Start a cluster, and measure on it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=20)
    options = parser.parse_args()
    with Client(n_workers=4, threads_per_worker=1, dashboard_address=":0") as client:
        measured(client, options.runs, options.pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
