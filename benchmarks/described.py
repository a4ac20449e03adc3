"""Compare collectives that are described in steps with the same ones derived over messages, on pretended hosts.

    python benchmarks/described.py [--layouts 00 01 0011] [--nbytes 16 4096] [--rounds 5]

A layout has a digit for each rank, which says on which host it is. A figure is the median of the rounds, in
microseconds; the two ways take turns. Without the compiled parts they are the same.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.backends import Call, Deadline, PointToPoint, ReduceOp
from rankwise.calls.calling import carry_out
from rankwise.collective.algorithms import Recv, Rounds, Send
from rankwise.collective.algorithms.rounds import all_reduce_recursive_doubling
from rankwise.collective.call import OPERATIONS, Operation, same_shape
from rankwise.collective.described import Described, Steps
from rankwise.groups.world import resolve

TIMEOUT_S = 300
LAYOUTS = ("00", "01", "0000", "0011", "0111", "0123")
NBYTES = (16, 4 << 10, 64 << 10, 512 << 10, 4 << 20)


def chain(rank: int, size: int) -> Rounds:
    """The rounds of a scan."""
    if rank > 0:
        yield (Recv(rank - 1, range(1), combine=True, left=True),)
    if rank < size - 1:
        yield (Send(rank + 1, range(1)),)


def doubling(rank: int, size: int) -> Rounds:
    """The rounds of an all_reduce of one block."""
    for steps in all_reduce_recursive_doubling(rank, size):
        yield tuple(step._replace(blocks=range(1)) for step in steps)


def describe(algorithm: Callable[[int, int], Rounds], by: Steps, call: Call) -> None:
    """Describe a reduction in the rounds of an algorithm."""
    assert call.reduce_op is not None
    total = by.accumulator(call.reduce_op, call.array)
    by.rounds(algorithm, [total], [total], call.reduce_op)
    by.finish(call.reduce_op, total, call.array)


def derive(described: Described, comm: PointToPoint, call: Call, deadline: Deadline, counts: Sequence[int]) -> None:
    """Carry it out over messages."""
    described(comm, call, deadline, counts)


for name, algorithm in (("scan", chain), ("doubled", doubling)):
    described = Described(partial(describe, algorithm))
    OPERATIONS[name] = Operation(same_shape, described, reduces=True)
    OPERATIONS[f"{name}, derived"] = Operation(same_shape, partial(derive, described), reduces=True)


def call_of(name: str, array: Any) -> None:
    """Make a call, as a public function does."""
    pg = resolve(None, name)
    assert pg is not None
    if not pg.shortcuts.described(name, array, ReduceOp.SUM, -1, None, None, None):
        carry_out(pg, Call(name, array, ReduceOp.SUM), array, False, None)


def timed(call: Callable[[], object], count: int) -> float:
    """Return how long a call takes, in microseconds."""
    call()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count * 1e6


def be_rank(layout: str, sizes: Sequence[int], rounds: int) -> None:
    """Time the calls as one rank; rank 0 prints them."""
    host = f"host-{layout[int(os.environ['RANK'])]}"
    vars(import_module("rankwise_gloo_tcp.setup.cards"))["machine"] = lambda: (host, host)
    dist.init_process_group("gloo")
    for name in ("scan", "doubled"):
        for nbytes in sizes:
            array = np.zeros(nbytes // 4, np.float32)
            count = max(3, min(300, (8 << 20) // nbytes))
            ways = {way: partial(call_of, way, array) for way in (name, f"{name}, derived")}
            took: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, call in ways.items():
                    took[way].append(timed(call, count))
            this, that = (statistics.median(each) for each in took.values())
            if dist.get_rank() == 0:
                print(f"| {layout} | {name} | {nbytes} | {that:.1f} | {this:.1f} | {this / that:.2f} |", flush=True)
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks of each layout, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS), help="default: %(default)s")
    parser.add_argument("--nbytes", nargs="+", type=int, default=list(NBYTES), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        be_rank(given.rank, given.nbytes, given.rounds)
        return
    print(
        "| layout | call | bytes | derived, us | in steps, us | steps / derived |\n|---|---|---|---|---|---|",
        flush=True,
    )
    for layout in given.layouts:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
        shared = {**os.environ, "WORLD_SIZE": str(len(layout)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, __file__, *sys.argv[1:], "--rank", layout]
        ranks = [subprocess.Popen(command, env={**shared, "RANK": str(rank)}) for rank in range(len(layout))]
        try:
            for each in ranks:
                each.wait(TIMEOUT_S)
        finally:
            for each in ranks:
                each.kill()


if __name__ == "__main__":
    main()
