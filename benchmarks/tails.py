"""Time every call by itself, beside mpi4py in the same processes: medians, means, the slowest, and the first calls.

    mpiexec -n 2 python benchmarks/tails.py
    mpiexec -n 2 python benchmarks/tails.py --background bursts
    mpiexec -n 2 python benchmarks/tails.py --one-processor
    RANKWISE_GLOO_TRANSPORT=tcp mpiexec -n 2 --mca btl tcp,self --mca pml ob1 python benchmarks/tails.py

Both make their calls in turns, so whatever else the machine does meets both. Before each call every rank writes to its
arrays, as programs do: bytes that nobody has changed since they were last sent are in the receiver's caches already. Of
a message there and back, half of the time counts. A background is what runs beside the ranks: nothing; one busy loop;
one for each processor; or loops that are busy for 2 ms and asleep for 20.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from arrays import met
from mpi4py import MPI

import rankwise as dist

COMM = MPI.COMM_WORLD
Call = Callable[[], object]
#: Our call, MPI's, and the arrays that both work on.
Compared = tuple[Call, Call, list[np.ndarray]]
SIZES = (8, 1 << 10, 16 << 10, 64 << 10)
#: So many calls are the first of their kind; and so many make a turn.
FIRST, A_TURN = 30, 50
BUSY = "while True: pass"
BURSTS = """
import time
while True:
    until = time.monotonic() + 0.002
    while time.monotonic() < until: pass
    time.sleep(0.02)
"""
BACKGROUNDS = {
    "quiet": [],
    "neighbour": [BUSY],
    "loops": [BUSY] * (os.cpu_count() or 1),
    "bursts": [BURSTS] * (os.cpu_count() or 1),
}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3000, help="of each kind and size; default 3000")
    parser.add_argument("--background", choices=BACKGROUNDS, default="quiet")
    parser.add_argument("--one-processor", action="store_true", help="which all ranks share, as they do not expect")
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES, help="in bytes; default %(default)s")
    parser.add_argument("--only", nargs="*", default=[], choices=KINDS | MORE, help="of these kinds")
    given = parser.parse_args()
    dist.init_process_group("gloo", init_method=met(), rank=COMM.rank, world_size=COMM.size)
    if given.one_processor:
        os.sched_setaffinity(0, {COMM.bcast(min(os.sched_getaffinity(0)))})
    with beside(BACKGROUNDS[given.background] if COMM.rank == 0 else []):
        if COMM.rank == 0:
            print(
                f"{MPI.Get_library_version().split(',')[0]}, {COMM.size} ranks, {given.background}; us, and of MPI's\n"
            )
            print(
                "| call | bytes | median | mean | 99 % | 99.9 % | the first 30 in all |\n|---|---|---|---|---|---|---|"
            )
        for kind in given.only or KINDS:
            for nbytes in given.sizes if kind != "barrier" else (0,):
                tell(kind, nbytes, *timed(*(KINDS | MORE)[kind](nbytes), given.calls))
    dist.destroy_process_group()


@contextmanager
def beside(programs: list[str]) -> Iterator[None]:
    """Have programs run meanwhile."""
    running = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        yield
    finally:
        for process in running:
            process.kill()


def timed(own: Call, theirs: Call, arrays: list[np.ndarray], calls: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how long each call of both took, in microseconds, on the rank that took longer over it."""
    took: tuple[list[float], list[float]] = [], []
    for turn in range(0, calls + FIRST, A_TURN):
        # Who is first has the colder caches.
        for who, call in ((0, own), (1, theirs)) if turn // A_TURN % 2 else ((1, theirs), (0, own)):
            COMM.Ibarrier().Wait()  # a barrier of another kind than the one that is timed
            for _ in range(A_TURN):
                for array in arrays:
                    array.fill(turn % 2)
                began = time.perf_counter_ns()
                call()
                took[who].append((time.perf_counter_ns() - began) / 1000)
    found = np.array(took)
    COMM.Allreduce(MPI.IN_PLACE, found, MPI.MAX)
    return found[0], found[1]


def tell(kind: str, nbytes: int, own: np.ndarray, theirs: np.ndarray) -> None:
    """Print a row: each figure, and how many times MPI's it is."""
    if COMM.rank:
        return
    share = 2 if kind == "message" else 1
    figures: dict[str, Callable[[np.ndarray], float]] = {
        "median": lambda took: float(np.median(took[FIRST:])) / share,
        "mean": lambda took: float(took[FIRST:].mean()) / share,
        "99 %": lambda took: float(np.percentile(took[FIRST:], 99)) / share,
        "99.9 %": lambda took: float(np.percentile(took[FIRST:], 99.9)) / share,
        "first": lambda took: float(took[:FIRST].sum()) / share,
    }
    cells = [f"{figure(own):.1f}, {figure(own) / figure(theirs):.2f}x" for figure in figures.values()]
    print(f"| {kind} | {nbytes} | {' | '.join(cells)} |", flush=True)


# ------------------------------------------------------------------ what is called: ours, and MPI's


def message(nbytes: int) -> Compared:
    """From rank 0 to rank 1 and back."""
    array, other = np.zeros(nbytes, np.uint8), COMM.rank ^ 1
    if other >= COMM.size:
        return (lambda: None), (lambda: None), []

    def in_turn(send: Callable[..., object], receive: Callable[..., object]) -> Call:
        first, second = (send, receive) if COMM.rank % 2 == 0 else (receive, send)

        def call() -> None:
            first(array, other)
            second(array, other)

        return call

    return in_turn(dist.send, dist.recv), in_turn(COMM.Send, COMM.Recv), [array]


def posted(nbytes: int) -> Compared:
    """Receives that are posted before both send."""
    mine, room, other = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), COMM.rank ^ 1
    if other >= COMM.size:
        return (lambda: None), (lambda: None), []

    def own() -> None:
        works = [dist.irecv(room, other), dist.isend(mine, other)]
        for work in works:
            assert work is not None
            work.wait()

    def theirs() -> None:
        MPI.Request.Waitall([COMM.Irecv(room, other), COMM.Isend(mine, other)])

    return own, theirs, [mine, room]


def all_reduce(nbytes: int) -> Compared:
    """Of float32; NumPy's rather than MPI's arrays of bytes."""
    array, total = np.zeros(nbytes // 4, np.float32), np.zeros(nbytes // 4, np.float32)
    return (lambda: dist.all_reduce(array)), (lambda: COMM.Allreduce(array, total)), [array, total]


def broadcast(nbytes: int) -> Compared:
    """From rank 0."""
    array = np.zeros(nbytes, np.uint8)
    return (lambda: dist.broadcast(array, 0)), (lambda: COMM.Bcast(array)), [array]


def all_gather(nbytes: int) -> Compared:
    """Of so many bytes of each rank."""
    array, whole = np.zeros(nbytes, np.uint8), np.zeros(nbytes * COMM.size, np.uint8)
    return (lambda: dist.all_gather_single(whole, array)), (lambda: COMM.Allgather(array, whole)), [array, whole]


def all_to_all(nbytes: int) -> Compared:
    """Of so many bytes from each rank to each."""
    given, come = np.zeros(nbytes * COMM.size, np.uint8), np.zeros(nbytes * COMM.size, np.uint8)
    return (lambda: dist.all_to_all_single(come, given)), (lambda: COMM.Alltoall(given, come)), [given, come]


def gather(nbytes: int) -> Compared:
    """Of so many bytes of each rank, to rank 0."""
    array, whole = np.zeros(nbytes, np.uint8), np.zeros(nbytes * COMM.size, np.uint8)
    parts = list(whole.reshape(COMM.size, -1)) if COMM.rank == 0 else None
    return (
        (lambda: dist.gather(array, parts, 0)),
        (lambda: COMM.Gather(array, None if COMM.rank else whole)),
        [array, whole],
    )


def scatter(nbytes: int) -> Compared:
    """Of so many bytes for each rank, from rank 0."""
    array, whole = np.zeros(nbytes, np.uint8), np.zeros(nbytes * COMM.size, np.uint8)
    parts = list(whole.reshape(COMM.size, -1)) if COMM.rank == 0 else None
    return (
        (lambda: dist.scatter(array, parts, 0)),
        (lambda: COMM.Scatter(None if COMM.rank else whole, array)),
        [array, whole],
    )


def reduce(nbytes: int) -> Compared:
    """Of float32, to rank 0."""
    array, total = np.zeros(nbytes // 4, np.float32), np.zeros(nbytes // 4, np.float32)
    return (lambda: dist.reduce(array, 0)), (lambda: COMM.Reduce(array, total)), [array, total]


def reduce_scatter(nbytes: int) -> Compared:
    """Of float32, so many bytes for each rank."""
    given, total = np.zeros(nbytes // 4 * COMM.size, np.float32), np.zeros(nbytes // 4, np.float32)
    return (
        (lambda: dist.reduce_scatter_single(total, given)),
        (lambda: COMM.Reduce_scatter_block(given, total)),
        [given, total],
    )


def told(nbytes: int) -> Compared:
    """By messages from rank 0, which does not wait for the others, beside a broadcast of MPI's."""
    array = np.zeros(nbytes, np.uint8)
    others = range(1, COMM.size)

    def own() -> None:
        if COMM.rank:
            dist.recv(array, 0)
        else:
            for other in others:
                dist.send(array, other)

    return own, (lambda: COMM.Bcast(array)), [array]


def handed_out(nbytes: int) -> Compared:
    """By messages likewise, beside a scatter of MPI's."""
    array, whole = np.zeros(nbytes, np.uint8), np.zeros(nbytes * COMM.size, np.uint8)
    mine, *parts = whole.reshape(COMM.size, -1)

    def own() -> None:
        if COMM.rank:
            dist.recv(array, 0)
        else:
            for other, part in enumerate(parts, 1):
                dist.send(part, other)
            array[:] = mine

    return own, (lambda: COMM.Scatter(None if COMM.rank else whole, array)), [array, whole]


def barrier(nbytes: int) -> Compared:
    """Without anything."""
    return dist.barrier, COMM.Barrier, []


KINDS: dict[str, Callable[[int], Compared]] = {
    "message": message,
    "posted": posted,
    "all_reduce": all_reduce,
    "broadcast": broadcast,
    "all_gather": all_gather,
    "all_to_all": all_to_all,
    "gather": gather,
    "scatter": scatter,
    "reduce": reduce,
    "reduce_scatter": reduce_scatter,
    "barrier": barrier,
}
#: What is timed only if it is asked for.
MORE: dict[str, Callable[[int], Compared]] = {"broadcast by messages": told, "scatter by messages": handed_out}


if __name__ == "__main__":
    main()
