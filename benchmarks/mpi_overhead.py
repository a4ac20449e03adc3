"""What the mpi backend adds to the bare mpi4py call, on the same buffers, in the same run.

    mpiexec -n 2 python benchmarks/mpi_overhead.py [--json FILE] [--samples N] [--sizes N [N ...]]

The bare call, the backend's method, the public call and the least that knows a deadline take turns in an order that
is drawn anew for each round, each after a barrier: 20 calls below 256 KiB, four from there on; so whatever else the
machine does, and whatever the one before has left in the caches, meets all alike. The bare call takes two turns. A
figure is the median over the rounds of rank 0 of the difference to the mean of these two; beside it stand, at the
larger sizes, the bounds between which that median lies with 95 % certainty, and what the backend adds as a share.

The least is what it takes to be able to give a call up, and nothing else: for all_reduce the barrier at the entry and
the blocking call, for the others the nonblocking call and a loop around `Test`, for a message the matched probe that
tells its size before it is received. A message counts one way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from itertools import count
from math import sqrt
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

import rankwise as dist
from rankwise import ReduceOp
from rankwise.backends import Call as Collective
from rankwise.basics.deadline import Deadline
from rankwise_mpi.collectives.entry_barrier import open_entry_barrier
from rankwise_mpi.collectives.marks import BARRIER
from rankwise_mpi.process.waiting import FIRST_LOOKS

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
    array = np.zeros(max(1, nbytes // 8))
    array[:] = 0  # or its memory is not there yet
    calls = _SMALL_CALLS if nbytes < SIZES[1] else _LARGE_CALLS
    rows = []
    for op, (bare, backend, public, least, messages) in operations(comm, array).items():
        if op == "barrier" and nbytes > SIZES[0]:
            continue
        contestants = (bare, bare, backend, public, least)
        times: list[list[float]] = [[] for _ in contestants]
        order, chance = list(range(len(contestants))), Random(nbytes)  # the same on all ranks
        for _ in range(samples):
            chance.shuffle(order)
            for which in order:
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
            lambda: lane.run(Collective("all_reduce", array, ReduceOp.SUM), _TIMEOUT_S),
            lambda: dist.all_reduce(array),
            least_all_reduce(comm, array),
            1,
        ),
        "broadcast": (
            lambda: comm.Bcast(array, 0),
            lambda: lane.run(Collective("broadcast", array, root=0), _TIMEOUT_S),
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
        "barrier": (
            comm.Barrier,
            lambda: lane.run(Collective("barrier"), _TIMEOUT_S),
            dist.barrier,
            lambda: finish(comm.Ibarrier()),
            1,
        ),
    }


def least_all_reduce(comm: MPI.Intracomm, array: Any) -> Call:
    """Return the least call that can be given up as long as others are missing."""
    barrier = open_entry_barrier(comm, Deadline(_TIMEOUT_S), FIRST_LOOKS, lambda request, buffer: None)
    if barrier is None:
        return lambda: finish(comm.Iallreduce(MPI.IN_PLACE, array))
    arrive, test, number = barrier.arrive, barrier.test, count(1).__next__

    def call() -> None:
        if not arrive(number(), BARRIER):
            while not test():
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
    bare: list[float], again: list[float], backend: list[float], public: list[float], least: list[float]
) -> dict[str, Any]:
    """Return medians, and what the others add to the bare call."""
    both = [(first + second) / 2 for first, second in zip(bare, again, strict=True)]

    def added(times: list[float]) -> list[float]:
        return sorted(time - beside for time, beside in zip(times, both, strict=True))

    return {
        "bare_us": median(both),
        "added_us": median(added(backend)),
        "bounds_us": bounds(added(backend)),
        "least_us": median(added(least)),
        "least_bounds_us": bounds(added(least)),
        "public_us": median(added(public)),
    }


def bounds(values: list[float]) -> tuple[float, float]:
    """Return the bounds of the median of sorted values at 95 % certainty, which need no assumption about them."""
    middle, half = len(values) / 2, 1.96 * sqrt(len(values)) / 2
    return values[max(0, int(middle - half))], values[min(len(values) - 1, int(middle + half))]


def between(both: tuple[float, float]) -> str:
    """Return bounds as they stand in the table."""
    return f" ({both[0]:+.2f} {both[1]:+.2f})"


def report(rows: list[dict[str, Any]], path: str | None) -> None:
    """Print the table, and write the figures."""
    library = " ".join(MPI.Get_library_version().splitlines()[0].split()).partition(",")[0].replace(" Version:", "")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{library}, {MPI.COMM_WORLD.size} ranks, {machine}; microseconds\n")
    print(f"{'operation':<12}{'bytes':>9}{'bare':>10}{'added':>8}{'':<17}{'least':>8}{'':<17}{'public':>8}")
    for row in rows:
        large = row["nbytes"] > SIZES[0]
        share = f"{row['added_us'] / row['bare_us']:>+8.1%}" if large else ""
        print(
            f"{row['op']:<12}{row['nbytes']:>9}{row['bare_us']:>10.2f}{row['added_us']:>+8.2f}"
            f"{between(row['bounds_us']):<17}{row['least_us']:>+8.2f}{between(row['least_bounds_us']):<17}"
            f"{row['public_us']:>+8.2f}{share}"
        )
    if path is not None:
        with open(path, "w") as file:
            json.dump({"library": library, "machine": machine, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
