"""Without MPI_THREAD_MULTIPLE: no thread of ours, and everything ends all the same."""

from __future__ import annotations

import threading

import numpy as np

import rankwise as dist


def main() -> None:
    dist.init_process_group("mpi", timeout=20)
    from mpi4py import MPI  # here, because importing it initialises MPI in its own way

    assert MPI.Query_thread() < MPI.THREAD_MULTIPLE
    rank, size = dist.get_rank(), dist.get_world_size()
    array, other = np.full(100_000, rank), np.full(3, rank)
    first, second = dist.all_reduce(array, async_op=True), dist.all_reduce(other, async_op=True)
    assert first is not None
    assert second is not None
    second.wait()
    while not first.is_completed():
        pass
    assert array[0] == other[0] == size * (size - 1) // 2
    third = dist.barrier(async_op=True)
    assert third is not None
    third.get_future().result(timeout=10)
    # Both send first: each must look for its receive while it waits for the other's.
    got = np.zeros(100_000)
    receive = dist.irecv(got, (rank - 1) % size)
    dist.send(np.full(100_000, float(rank)), (rank + 1) % size)
    assert receive is not None
    receive.wait()
    assert got[0] == (rank - 1) % size
    assert threading.active_count() == 1, threading.enumerate()
    dist.destroy_process_group()
    print("fine", flush=True)


main()
