"""Time what rankwise-arrays brings beside mpi4py, in the same processes, alternating.

    mpiexec -n 2 python benchmarks/arrays.py              the calls, the queue, the sort and the transpose
    mpiexec -n 4 python benchmarks/arrays.py              the scan, halos on 2 x 2 ranks, the sort and the transpose

Each line gives the median time of each way, of the slowest rank, and the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import rankwise as dist
from rankwise import functional

MIB = 1 << 20
COMM = MPI.COMM_WORLD
Way = Callable[[], object]


def main() -> None:
    """Print a line for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*", help="of these names, such as: scan sort", default=[])
    options = parser.parse_args()
    dist.init_process_group("gloo", init_method=met(), rank=COMM.rank, world_size=COMM.size)
    for name, (calls, ways) in comparisons(options.only).items():
        compare(name, calls, ways, options.rounds)
    dist.destroy_process_group()


def met() -> str:
    """Return an address that rank 0 has found free."""
    if COMM.rank == 0:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as door:
            port = door.getsockname()[1]
    return f"tcp://127.0.0.1:{COMM.bcast(port if COMM.rank == 0 else None)}"


def comparisons(only: list[str]) -> dict[str, tuple[int, dict[str, Way]]]:
    """Return what is compared by this many ranks: how many calls make a round, and the ways, the first ours."""
    all_of_them = {"sort": sorts, "transpose": transposes, "queue": queues}
    all_of_them |= {"scan": scans, "halos": halos} | ({"calls": calls} if COMM.size == 2 else {})
    found = {}
    for name, make in all_of_them.items():
        if not only or name in only:
            found |= make()
    return found


def compare(name: str, calls: int, ways: dict[str, Way], rounds: int) -> None:
    """Time the ways in turns and print a line."""
    for way in ways.values():
        for _ in range(max(2, calls // 4)):
            way()
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, call in ways.items():
            took[way].append(slowest(call, calls))
    if COMM.rank == 0:
        first, *others = took
        line = f"{name:34} {first} {shown(statistics.median(took[first]))}"
        for other in others:
            ratio = statistics.median(theirs / ours for ours, theirs in zip(took[first], took[other], strict=True))
            line += f"; {other} {shown(statistics.median(took[other]))}, {ratio:.2f} of it"
        print(line, flush=True)


def slowest(call: Way, calls: int) -> float:
    """Return the time of one of several calls on the slowest rank."""
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return float(functional.all_reduce((time.perf_counter() - began) / calls, dist.ReduceOp.MAX))


def shown(time_s: float) -> str:
    """Return a time with a unit."""
    return f"{time_s * 1e6:.2f} us" if time_s < 1e-3 else f"{time_s * 1e3:.2f} ms"


def calls() -> dict[str, tuple[int, dict[str, Way]]]:
    """Return prepared and functional calls of 8 bytes."""
    array, out, theirs = np.ones(1), np.empty(1), np.ones(1)
    plan = dist.prepare("all_reduce", array)

    def copied() -> None:
        dist.all_reduce(array.copy())

    return {
        "all_reduce of 8 bytes, prepared": (
            2000,
            {
                "plan()": plan,
                "all_reduce": lambda: dist.all_reduce(out),
                "MPI": lambda: COMM.Allreduce(MPI.IN_PLACE, theirs),
            },
        ),
        "all_reduce of 8 bytes, functional": (
            2000,
            {"functional": lambda: functional.all_reduce(array), "copy and call": copied},
        ),
    }


def scans() -> dict[str, tuple[int, dict[str, Way]]]:
    """Return scans of 1 MiB beside `all_reduce`."""
    array, out = np.ones(MIB // 8), np.empty(MIB // 8)
    return {
        "scan of 1 MiB": (
            10,
            {
                "scan": lambda: functional.scan(array),
                "all_reduce": lambda: functional.all_reduce(array),
                "MPI": lambda: COMM.Scan(array, out),
            },
        )
    }


def halos() -> dict[str, tuple[int, dict[str, Way]]]:
    """Return the exchange of halos of 4096 x 4096 numbers on a grid of two dimensions, corners included."""
    grid = dist.grid(2)
    cart = COMM.Create_cart(list(grid.shape))
    shape = [4096 // n + 2 for n in grid.shape]
    block = np.ones(shape)
    sends = []
    for axis in range(2):
        before, after = cart.Shift(axis, 1)
        for to, source, sent, taken in ((before, after, 1, -1), (after, before, -2, 0)):
            sends.append((to, face(block, axis, sent), source, face(block, axis, taken)))

    def theirs() -> None:
        for to, (sent, sent_type), source, (taken, taken_type) in sends:
            cart.Sendrecv([sent, 1, sent_type], to, recvbuf=[taken, 1, taken_type], source=source)

    return {"halos of 4096 x 4096": (100, {"rankwise": lambda: grid.exchange_halos(block), "mpi4py": theirs})}


def face(block: np.ndarray, axis: int, at: int) -> tuple[np.ndarray, MPI.Datatype]:
    """Return one line of a block, with its corners, for MPI."""
    shape, sizes, starts = list(block.shape), list(block.shape), [0, 0]
    sizes[axis], starts[axis] = 1, at % shape[axis]
    made = MPI.DOUBLE.Create_subarray(shape, sizes, starts)
    made.Commit()
    return block, made


def sorts() -> dict[str, tuple[int, dict[str, Way]]]:
    """Return sorts by samples of a million numbers a rank."""
    mine = np.random.default_rng(COMM.rank).random(1_000_000)
    size = COMM.size

    def ours() -> Any:
        ordered = np.sort(mine)
        samples = np.sort(functional.all_gather(ordered[:: len(ordered) // size][:size], axis=0))
        parts = np.split(ordered, np.searchsorted(ordered, samples[size::size]))
        return np.sort(functional.all_to_all(parts, concat_axis=0))

    def theirs() -> Any:
        ordered = np.sort(mine)
        samples = np.empty(size * size)
        COMM.Allgather(np.ascontiguousarray(ordered[:: len(ordered) // size][:size]), samples)
        samples.sort()
        ends = np.append(np.searchsorted(ordered, samples[size::size]), len(ordered))
        counts = np.diff(ends, prepend=0)
        incoming = np.empty_like(counts)
        COMM.Alltoall(counts, incoming)
        got = np.empty(incoming.sum())
        COMM.Alltoallv([ordered, counts], [got, incoming])
        return np.sort(got)

    assert np.array_equal(ours(), theirs())
    return {"sort of a million a rank": (1, {"rankwise": ours, "mpi4py": theirs})}


def transposes() -> dict[str, tuple[int, dict[str, Way]]]:
    """Return the transpose of 2048 x 2048 numbers that are divided by rows."""
    whole = np.arange(2048.0 * 2048).reshape(2048, 2048)
    many = 2048 // COMM.size
    mine = whole[COMM.rank * many :][:many].copy()

    def theirs() -> Any:
        sent = np.ascontiguousarray(mine.reshape(many, COMM.size, many).transpose(1, 2, 0))
        got = np.empty_like(sent)
        COMM.Alltoall(sent, got)
        return got.transpose(1, 0, 2).reshape(many, 2048)

    assert np.array_equal(functional.transpose(mine), theirs())
    return {"transpose of 2048 x 2048": (5, {"rankwise": lambda: functional.transpose(mine), "mpi4py": theirs})}


def queues() -> dict[str, tuple[int, dict[str, Way]]]:
    """Return a queue of 2,000 short tasks for whichever rank is free."""
    tasks = range(2000)

    def ours() -> None:
        with dist.pool() as pool:
            assert sum(pool.map_unordered(abs, tasks)) in (0, sum(tasks))

    def theirs() -> None:
        if COMM.rank:
            while (task := COMM.recv(source=0)) is not None:
                COMM.send(abs(task), 0)
            return
        left, status, found = iter(tasks), MPI.Status(), 0
        for worker in range(1, COMM.size):
            COMM.send(next(left), worker)
        for _ in tasks:
            found += COMM.recv(status=status)
            COMM.send(next(left, None), status.Get_source())
        assert found == sum(tasks)

    return {"queue of 2,000 tasks": (1, {"rankwise": ours, "mpi4py": theirs})}


if __name__ == "__main__":
    os.environ.setdefault("RANKWISE_DEBUG", "off")
    main()
