"""Tell how much of an asynchronous all_reduce between two hosts is hidden behind what the ranks compute meanwhile.

    sudo python benchmarks/overlap.py                  # the link as fast as the machine
    sudo python benchmarks/overlap.py --mbit 1000      # a link of 1 Gbit/s
    sudo python benchmarks/overlap.py --torch .venv-torch/bin/python

The hosts are network namespaces, the array has 16 MiB. Each rank times the call alone, work that takes as long, and
both at once; the overlap is the part of the call that the work hides. Work is of three kinds: `asleep`, which leaves
the processor as a GPU's work does; `numpy`, short calls that let the interpreter go; `python`, which never does of its
own accord. Where there are no more processors than ranks, numpy and python leave none for the call: what it takes of a
processor cannot be hidden, so the table says how much that is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gloo_compare
import namespaces
import numpy as np
from two_hosts import Hosts, forbidden

KINDS = ("asleep", "numpy", "python")
NBYTES = 16 << 20


def work_of(kind: str) -> Callable[[float], Callable[[], object]]:
    """Return what makes work of a kind that takes so many seconds alone."""
    if kind == "asleep":
        return lambda seconds: lambda: time.sleep(seconds)
    a, b = np.ones(1 << 14, np.float32), np.ones(1 << 14, np.float32)

    def numbers(count: int) -> None:
        for _ in range(count):
            np.add(a, b, out=b)

    def bytecode(count: int) -> None:
        total = 0
        for index in range(count):
            total += index & 7

    do, count = (numbers, 2000) if kind == "numpy" else (bytecode, 200000)
    do(count)
    took = statistics.median(timed(lambda: do(count)) for _ in range(5))
    return lambda seconds: lambda: do(max(1, int(count * seconds / took)))


def timed(call: Callable[[], object]) -> float:
    """Return how many seconds a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def rank(contender: str, calls: int) -> None:
    """Be one rank; rank 0 prints what it found."""
    us = gloo_compare.CONTENDERS[contender]()
    array = us.array(np.zeros(NBYTES // 4, np.float32))
    makers = {kind: work_of(kind) for kind in KINDS}
    found = {}

    def median(call: Callable[[], object]) -> float:
        times = []
        for _ in range(calls):
            us.barrier()
            times.append(timed(call))
        return statistics.median(times)

    def asynchronous() -> None:
        us.dist.all_reduce(array, async_op=True).wait()

    for kind, make in makers.items():
        used = time.process_time()
        alone = median(asynchronous)
        used = (time.process_time() - used) / calls
        shared = us.array(np.array([alone]))
        us.dist.broadcast(shared, 0)
        work = make(float(shared[0]))

        def both(work: Callable[[], object] = work) -> None:
            pending = us.dist.all_reduce(array, async_op=True)
            work()
            pending.wait()

        found[kind] = {"alone": alone, "used": used, "work": median(work), "both": median(both)}
    if us.rank == 0:
        print(json.dumps(found), flush=True)
    us.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mbit", type=int, default=0, help="limit the link to so many megabits per second")
    parser.add_argument("--alternations", type=int, default=3)
    parser.add_argument("--calls", type=int, default=15, help="of each kind")
    parser.add_argument("--torch", help="the Python of an environment that has torch, for its gloo beside it")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        rank(given.rank, given.calls)
        return
    if reason := forbidden():
        raise SystemExit(f"no namespaces here: {reason}")
    pythons = {"rankwise": sys.executable} | ({"torch": given.torch} if given.torch else {})
    runs: dict[str, list[Any]] = {name: [] for name in pythons}
    with Hosts(2) as hosts, tempfile.TemporaryDirectory() as folder:
        secret = namespaces.write_secret(Path(folder))
        if given.mbit:
            hosts.limit(given.mbit)
        for _ in range(given.alternations):
            for name, python in pythons.items():
                command = [__file__, "--rank", name, "--calls", str(given.calls)]
                runs[name].append(namespaces.launch(hosts, name, secret, command, python))
    print("| | work | call (ms) | of that cpu (ms) | work (ms) | both (ms) | overlap |\n|---|---|---|---|---|---|---|")
    for name, theirs in runs.items():
        for kind in KINDS:
            alone, used, work, both = (
                statistics.median(run[kind][key] for run in theirs) * 1e3 for key in ("alone", "used", "work", "both")
            )
            hidden = (alone + work - both) / min(alone, work)
            print(f"| {name} | {kind} | {alone:.1f} | {used:.1f} | {work:.1f} | {both:.1f} | {hidden:.0%} |")


if __name__ == "__main__":
    main()
