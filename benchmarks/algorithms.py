"""Time the algorithms of the core's collectives among many ranks, alternating, beside what the model predicts.

    python benchmarks/algorithms.py --ranks 8 16 --ops broadcast reduce all_reduce

All ranks are on this machine and talk over TCP. With more ranks than processors it is the work of all ranks together
that a figure shows, messages and bytes alike, and not how long they wait for each other: a line of the table needs both
this and `rankwise explain`. Each figure is the median of the slowest rank's times, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

SIZES = (64 << 10, 1 << 20, 8 << 20)
_GIVEN = "ALGORITHMS_GIVEN"


def rank() -> None:
    """Be one rank, and on rank 0 print the figures."""
    import rankwise as dist
    from rankwise.basics.deadline import Deadline
    from rankwise.collective.algorithms.table import derived_algorithm, rooted
    from rankwise.collective.executor import Executor
    from rankwise.groups.world import current
    from rankwise_tools.explaining.algorithms import ALGORITHMS

    given = json.loads(os.environ[_GIVEN])
    dist.init_process_group("gloo", timeout=120)
    default = current().default
    assert default is not None
    comm, size = default.communicators()[0], dist.get_world_size()

    def once(op: str, name: str, nbytes: int) -> float:
        array = np.ones(nbytes // 4, np.float32)
        blocks = [array[array.size * i // size : array.size * (i + 1) // size] for i in range(size)]
        rounds = ALGORITHMS[op][name](dist.get_rank(), size, *rooted(op, 0))
        dist.barrier()
        began = time.perf_counter()
        sums = dist.ReduceOp.SUM if "reduce" in op else None
        Executor(comm, blocks, blocks, Deadline(60), sums).run(rounds)  # type: ignore[arg-type]
        took = np.array([time.perf_counter() - began])
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        return float(took[0])

    for op in given["ops"]:
        for nbytes in given["sizes"]:
            times: dict[str, list[float]] = {name: [] for name in ALGORITHMS[op]}
            for _ in range(given["turns"]):
                for name, found in times.items():
                    found.append(once(op, name, nbytes))
            if dist.get_rank() == 0:
                row = " ".join(f"{name} {1e3 * statistics.median(found):.2f}" for name, found in times.items())
                print(
                    f"| {size} | {op} | {nbytes >> 10} KiB | {derived_algorithm(op, nbytes, size)} | {row} |",
                    flush=True,
                )
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--ops", nargs="+", default=["broadcast", "reduce", "all_reduce"])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes of the array")
    parser.add_argument("--turns", type=int, default=9)
    given = parser.parse_args()
    told = {"ops": given.ops, "sizes": given.sizes, "turns": given.turns}
    env = {**os.environ, _GIVEN: json.dumps(told), "RANKWISE_GLOO_TRANSPORT": "tcp"}
    print("| ranks | op | size | table | algorithms (ms) |\n|---|---|---|---|---|", flush=True)
    for count in given.ranks:
        command = [sys.executable, "-m", "rankwise", "run", "-n", str(count), __file__]
        done = subprocess.run(command, check=True, env=env, stdout=subprocess.PIPE, text=True, timeout=280)
        for line in done.stdout.splitlines():
            print(f"| {line.partition('| ')[2]}", flush=True)


if __name__ == "__main__":
    rank() if "RANK" in os.environ else main()
