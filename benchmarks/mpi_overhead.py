"""What the mpi backend adds to the bare mpi4py call, on the same buffers, in the same run.

    mpiexec -n 2 python benchmarks/mpi_overhead.py [--json FILE] [--rounds N]

Each figure is the median over rounds in which the bare call, the backend's method and the public call take turns; the
spread is that of the middle half of the rounds. A message counts one way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

import rankwise as dist
from rankwise import ReduceOp

SIZES = (8, 256 << 10, 1 << 20, 4 << 20)
#: What one turn of a round may take, in bytes moved and in calls.
_TURN_NBYTES, _TURN_CALLS = 32 << 20, 2000
_TIMEOUT_S = 60.0

Call = Callable[[], object]


def main() -> None:
    """Measure, and print the table on rank 0."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", help="write the figures to this file")
    options.add_argument("--rounds", type=int, default=15)
    chosen = options.parse_args()
    dist.init_process_group("mpi", timeout=_TIMEOUT_S)
    comm = MPI.COMM_WORLD.Dup()
    rows = [row for nbytes in SIZES for row in measure(comm, nbytes, chosen.rounds)]
    if comm.rank == 0:
        report(rows, chosen.json)
    dist.destroy_process_group()


def measure(comm: MPI.Intracomm, nbytes: int, rounds: int) -> list[dict[str, Any]]:
    """Return one row for each operation at one size."""
    array = np.ones(max(1, nbytes // 8))
    calls = max(5, min(_TURN_CALLS, _TURN_NBYTES // nbytes))
    rows = []
    for op, (bare, backend, public, messages) in operations(comm, array).items():
        if op == "barrier" and nbytes > SIZES[0]:
            continue
        turns: list[list[float]] = [[], [], []]
        for call in (bare, backend, public):
            take_turn(comm, call, calls)
        for _ in range(rounds):
            for times, call in zip(turns, (bare, backend, public), strict=True):
                times.append(take_turn(comm, call, calls) / messages)
        rows.append({"op": op, "nbytes": nbytes if op != "barrier" else 0, **figures(*turns)})
    return rows


def operations(comm: MPI.Intracomm, array: Any) -> dict[str, tuple[Call, Call, Call, int]]:
    """Return for each operation the bare call, the backend's and the public one, and the messages they make."""
    world = dist.group.WORLD
    assert world is not None
    lane = world.lane(array, "all_reduce", ReduceOp.SUM)
    peer, first = 1 - comm.rank, comm.rank == 0

    def exchange(send: Call, receive: Call) -> Call:
        return (lambda: (send(), receive())) if first else (lambda: (receive(), send()))

    return {
        "all_reduce": (
            lambda: comm.Allreduce(MPI.IN_PLACE, array),
            lambda: lane.all_reduce(array, ReduceOp.SUM, _TIMEOUT_S),
            lambda: dist.all_reduce(array),
            1,
        ),
        "broadcast": (
            lambda: comm.Bcast(array, 0),
            lambda: lane.broadcast(array, 0, _TIMEOUT_S),
            lambda: dist.broadcast(array, 0),
            1,
        ),
        "send/recv": (
            exchange(lambda: comm.Send(array, peer), lambda: comm.Recv(array, peer)),
            exchange(
                lambda: lane.send(array, peer, 0, _TIMEOUT_S), lambda: lane.recv(array, peer, 0, _TIMEOUT_S)
            ),
            exchange(lambda: dist.send(array, peer), lambda: dist.recv(array, peer)),
            2,
        ),
        "barrier": (comm.Barrier, lambda: lane.barrier(_TIMEOUT_S), dist.barrier, 1),
    }


def take_turn(comm: MPI.Intracomm, call: Call, calls: int) -> float:
    """Return the mean time of a call in microseconds."""
    comm.Barrier()
    begin = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - begin) / calls * 1e6


def figures(bare: list[float], backend: list[float], public: list[float]) -> dict[str, float]:
    """Return medians, and the middle half of what the backend adds in each round."""
    added = [ours - theirs for ours, theirs in zip(backend, bare, strict=True)]
    low, _, high = quantiles(added, n=4)
    return {
        "bare_us": median(bare),
        "backend_us": median(backend),
        "public_us": median(public),
        "added_us": median(added),
        "added_low_us": low,
        "added_high_us": high,
    }


def report(rows: list[dict[str, Any]], path: str | None) -> None:
    """Print the table, and write the figures."""
    library = " ".join(MPI.Get_library_version().splitlines()[0].split()).partition(",")[0].replace(" Version:", "")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{library}, {MPI.COMM_WORLD.size} ranks, {machine}; microseconds\n")
    print(f"{'operation':<12}{'bytes':>9}{'bare':>10}{'backend':>10}{'public':>10}{'added':>9}  middle half")
    for row in rows:
        share = f"{row['added_us'] / row['bare_us']:+.1%}" if row["nbytes"] > SIZES[0] else ""
        print(
            f"{row['op']:<12}{row['nbytes']:>9}{row['bare_us']:>10.2f}{row['backend_us']:>10.2f}"
            f"{row['public_us']:>10.2f}{row['added_us']:>+9.2f}  "
            f"{row['added_low_us']:+.2f} .. {row['added_high_us']:+.2f}  {share}"
        )
    if path is not None:
        with open(path, "w") as file:
            json.dump({"library": library, "machine": machine, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
