"""Time an `all_reduce` with several connections a pair, where one connection gets a share of the link.

    python benchmarks/several_connections.py --mbit 1000

Each connection is held to so many Mbit/s by `SO_MAX_PACING_RATE`, as clouds do with each flow; the link itself is as
fast as the machine. The ranks take themselves for those of two hosts, and take turns with a group for each value of
`RANKWISE_GLOO_CONNECTIONS`; a cell is the median, and the middle ratio to one connection in the same turn.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import time
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_gloo_tcp.setup import cards
from rankwise_testing import run_ranks

#: Of Linux's headers; Python has no name for it.
_SO_MAX_PACING_RATE = 47
_PATIENCE_S = 300.0


class PacedSocket(socket.socket):
    """A socket that sends no faster than asked for; those that it accepts do the same."""

    nbytes_per_s = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.family != socket.AF_UNIX and self.nbytes_per_s:
            self.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, self.nbytes_per_s)


def measure(mbit: int, each: int, counts: list[int], nbytes: int, turns: int) -> dict[int, list[float]]:
    """Return the times of an `all_reduce` over so many connections, in milliseconds, turn by turn."""
    host = f"host {int(os.environ['RANK']) // each}"
    cards.machine = lambda: (host, host)
    PacedSocket.nbytes_per_s = mbit * 125_000
    socket.socket = PacedSocket  # type: ignore[misc]
    dist.init_process_group("gloo", timeout=_PATIENCE_S)
    groups = {}
    for count in counts:
        os.environ["RANKWISE_GLOO_CONNECTIONS"] = str(count)
        groups[count] = dist.new_group()
        dist.barrier(group=groups[count])  # it is made when it is first needed
    array = np.ones(nbytes // 4, np.float32)
    times: dict[int, list[float]] = {count: [] for count in counts}
    for turn in range(turns + 1):  # the first opens the connections
        for count, group in groups.items():
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(array, group=group)
            if turn:
                times[count].append((time.perf_counter() - began) * 1e3)
    dist.destroy_process_group()
    return times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mbit", type=int, default=1000, help="what one connection gets; 0: all that there is")
    parser.add_argument("--each", type=int, default=1, help="how many ranks a host has")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--nbytes", type=int, default=64 << 20)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    asked = given.mbit, given.each, given.counts, given.nbytes, given.turns
    found = run_ranks(measure, 2 * given.each, *asked, timeout=_PATIENCE_S)[0]
    print("| connections | ms | to one |\n|---|---|---|")
    for count, each in found.items():
        ratio = statistics.median(b / a for a, b in zip(found[given.counts[0]], each, strict=True))
        print(f"| {count} | {statistics.median(each):.3g} | {ratio:.2f} |")
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
