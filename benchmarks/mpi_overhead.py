"""What the mpi backend adds to the bare mpi4py call, on the same buffers, in the same run.

    mpiexec -n 2 python benchmarks/mpi_overhead.py [--json FILE] [--samples N] [--sizes N [N ...]]

The bare call, the backend's method, the public call and the least that knows a deadline take turns, each after a
barrier: 20 calls below 256 KiB, four from there on; so whatever else the machine does meets all alike. The least is
what it takes to be able to give a call up, and nothing else: the nonblocking call and a loop around `Test`, for a
message the matched probe that tells its size before it is received, for Open MPI's all_reduce, whose nonblocking call
is far slower, the gate and the blocking call. Each figure is the median of the samples of rank 0. The bare call takes
two turns in each round, and their difference shows what the machine leaves unsaid. A message counts one way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

import rankwise as dist
from rankwise import ReduceOp
from rankwise.deadline import Deadline
from rankwise_mpi.gate import open_gate
from rankwise_mpi.waiting import FIRST_LOOKS

SIZES = (8, 256 << 10, 1 << 20, 4 << 20)
#: How many calls one sample is the mean of.
_SMALL_CALLS, _LARGE_CALLS = 20, 4
_TIMEOUT_S = 60.0

Call = Callable[[], object]


def main() -> None:
    """Measure, and print the table on rank 0."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", help="write the figures to this file")
    options.add_argument("--samples", type=int, default=400)
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="in bytes")
    chosen = options.parse_args()
    dist.init_process_group("mpi", timeout=_TIMEOUT_S)
    comm = MPI.COMM_WORLD.Dup()
    rows = [row for nbytes in chosen.sizes for row in measure(comm, nbytes, chosen.samples)]
    if comm.rank == 0:
        report(rows, chosen.json)
    dist.destroy_process_group()


def measure(comm: MPI.Intracomm, nbytes: int, samples: int) -> list[dict[str, Any]]:
    """Return one row for each operation at one size."""
    array = np.ones(max(1, nbytes // 8))
    calls = _SMALL_CALLS if nbytes < SIZES[1] else _LARGE_CALLS
    rows = []
    for op, (bare, backend, public, least, messages) in operations(comm, array).items():
        if op == "barrier" and nbytes > SIZES[0]:
            continue
        contestants = (bare, backend, public, least, bare)
        times: list[list[float]] = [[] for _ in contestants]
        for round_ in range(samples):
            # Each in turn goes first, as whoever follows finds other things in the caches.
            for place in range(len(contestants)):
                which = (round_ + place) % len(contestants)
                times[which].append(sample(comm, contestants[which], calls) / messages)
        rows.append({"op": op, "nbytes": nbytes if op != "barrier" else 0, **figures(*times)})
    return rows


def operations(comm: MPI.Intracomm, array: Any) -> dict[str, tuple[Call, Call, Call, Call, int]]:
    """Return for each operation the bare call, the backend's, the public one and the least, and their messages."""
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
            least_all_reduce(comm, array),
            1,
        ),
        "broadcast": (
            lambda: comm.Bcast(array, 0),
            lambda: lane.broadcast(array, 0, _TIMEOUT_S),
            lambda: dist.broadcast(array, 0),
            lambda: finish(comm.Ibcast(array, 0)),
            1,
        ),
        "send/recv": (
            exchange(lambda: comm.Send(array, peer), lambda: comm.Recv(array, peer)),
            exchange(lambda: lane.send(array, peer, 0, _TIMEOUT_S), lambda: lane.recv(array, peer, 0, _TIMEOUT_S)),
            exchange(lambda: dist.send(array, peer), lambda: dist.recv(array, peer)),
            exchange(lambda: finish(comm.Isend(array, peer)), lambda: receive_matched(comm, array, peer)),
            2,
        ),
        "barrier": (comm.Barrier, lambda: lane.barrier(_TIMEOUT_S), dist.barrier, lambda: finish(comm.Ibarrier()), 1),
    }


def least_all_reduce(comm: MPI.Intracomm, array: Any) -> Call:
    """Return the least call that can be given up as long as others are missing."""
    gate = open_gate(comm, Deadline(_TIMEOUT_S), FIRST_LOOKS) if "Open MPI" in MPI.Get_library_version() else None
    if gate is None:
        return lambda: finish(comm.Iallreduce(MPI.IN_PLACE, array))
    numbers = count(1)

    def call() -> None:
        if not gate.come(next(numbers)):
            while not gate.test():
                pass
        comm.Allreduce(MPI.IN_PLACE, array)

    return call


def finish(request: MPI.Request) -> None:
    """Look until a request has ended."""
    test = request.Test
    while not test():
        pass


def receive_matched(comm: MPI.Intracomm, array: Any, peer: int) -> None:
    """Receive a message whose size is known beforehand."""
    met = None
    while met is None:
        met = comm.Improbe(peer)
    finish(met.Irecv(array))


def sample(comm: MPI.Intracomm, call: Call, calls: int) -> float:
    """Return the mean time of some calls in microseconds."""
    comm.Barrier()
    call()
    begin = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - begin) / calls * 1e6


def figures(
    bare: list[float], backend: list[float], public: list[float], least: list[float], again: list[float]
) -> dict[str, float]:
    """Return medians, and what the backend and the least add to the bare call."""
    both = bare + again
    return {
        "bare_us": median(both),
        "backend_us": median(backend),
        "public_us": median(public),
        "added_us": median(backend) - median(both),
        "least_us": median(least) - median(both),
        "unsaid_us": abs(median(bare) - median(again)),
    }


def report(rows: list[dict[str, Any]], path: str | None) -> None:
    """Print the table, and write the figures."""
    library = " ".join(MPI.Get_library_version().splitlines()[0].split()).partition(",")[0].replace(" Version:", "")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{library}, {MPI.COMM_WORLD.size} ranks, {machine}; microseconds\n")
    print(
        f"{'operation':<12}{'bytes':>9}{'bare':>10}{'backend':>10}{'public':>10}{'added':>9}{'least':>9}{'bare/bare':>11}"
    )
    for row in rows:
        share = f"{row['added_us'] / row['bare_us']:+8.1%}" if row["nbytes"] > SIZES[0] else ""
        print(
            f"{row['op']:<12}{row['nbytes']:>9}{row['bare_us']:>10.2f}{row['backend_us']:>10.2f}"
            f"{row['public_us']:>10.2f}{row['added_us']:>+9.2f}{row['least_us']:>+9.2f}{row['unsaid_us']:>11.2f}{share}"
        )
    if path is not None:
        with open(path, "w") as file:
            json.dump({"library": library, "machine": machine, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
