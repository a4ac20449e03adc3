"""Compare the calls of two ranks in this tree with those in another one, such as that before a change.

    python benchmarks/two_trees.py /path/to/the/other/tree/.venv/bin/python [--rounds 5] [--ways "shm" "tcp, Python"]

Each round runs both trees, the one first that was last in the round before. A figure is the median of the rounds, of
which each is the median of nine runs of a loop.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np

TIMEOUT_S = 100
LOOPS = 9
PYTHON, TCP = {"RANKWISE_NATIVE": "off"}, {"RANKWISE_GLOO_TRANSPORT": "tcp"}
WAYS = {"shm": {}, "tcp": TCP, "shm, Python": PYTHON, "tcp, Python": PYTHON | TCP}


def rank() -> None:
    """Time the calls as one of two ranks; rank 0 prints them."""
    import rankwise as dist  # the one of the tree whose Python this is

    dist.init_process_group("gloo")
    me, other = dist.get_rank(), 1 - dist.get_rank()

    def timed(call: Callable[[], object], count: int) -> float:
        for _ in range(max(5, count // 5)):
            call()
        dist.barrier()
        took = []
        for _ in range(LOOPS):
            began = time.perf_counter()
            for _ in range(count):
                call()
            took.append((time.perf_counter() - began) / count * 1e6)
        return statistics.median(took)

    def answered(array: np.ndarray) -> None:
        for turn in (0, 1):
            dist.send(array, other) if me == turn else dist.recv(array, other)

    arrays = {nbytes: np.ones(nbytes // 8) for nbytes in (8, 16, 8 << 10, 32 << 10, 1 << 20, 2 << 20)}
    outs = [np.empty(1 << 10) for _ in range(2)]
    found = {
        "all_reduce 16 B": timed(lambda: dist.all_reduce(arrays[16]), 1000),
        "all_reduce 32 KiB": timed(lambda: dist.all_reduce(arrays[32 << 10]), 300),
        "all_reduce 2 MiB": timed(lambda: dist.all_reduce(arrays[2 << 20]), 15),
        "message and answer 8 B": timed(lambda: answered(arrays[8]), 1000),
        "message and answer 1 MiB": timed(lambda: answered(arrays[1 << 20]), 20),
        "all_gather 8 KiB": timed(lambda: dist.all_gather(outs, arrays[8 << 10]), 300),
        "broadcast 8 KiB": timed(lambda: dist.broadcast(arrays[8 << 10], 0), 300),
        "barrier": timed(dist.barrier, 500),
    }
    if me == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def run(python: str, variables: dict[str, str]) -> dict[str, float]:
    """Return what two ranks of a tree take for each call, in microseconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    shared = {**os.environ, **variables, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [python, __file__, "--rank", "-"]
    ranks = [
        subprocess.Popen(command, env={**shared, "RANK": str(number)}, stdout=subprocess.PIPE, text=True)
        for number in range(2)
    ]
    try:
        said = [each.communicate(timeout=TIMEOUT_S)[0] for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    return dict(json.loads(said[0]))


def main() -> None:
    """Run both trees in turn, and print a table for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="the Python of the other tree")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="default: all")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        rank()
        return
    trees = [("that", given.other), ("this", sys.executable)]
    print("| way | call | other tree, us | this tree, us | this / other |\n|---|---|---|---|---|")
    for way in given.ways:
        took: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for _ in range(given.rounds):
            trees.reverse()
            for tree, python in trees:
                for call, us in run(python, WAYS[way]).items():
                    took[call][tree].append(us)
        for call, found in took.items():
            that, this = (statistics.median(found[tree]) for tree in ("that", "this"))
            print(f"| {way} | {call} | {that:.2f} | {this:.2f} | {this / that:.2f} |", flush=True)


if __name__ == "__main__":
    main()
