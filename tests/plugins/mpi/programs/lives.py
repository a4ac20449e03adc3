"""Groups made and destroyed many times, in many shapes: nothing grows."""

from __future__ import annotations

import os
import threading

import numpy as np

import rankwise as dist


def held() -> tuple[int, int]:
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


def life(count: int) -> None:
    dist.init_process_group("mpi", timeout=20)
    size = dist.get_world_size()
    backwards = dist.new_group(list(range(size))[::-1], sort_ranks=False)
    alone = dist.split_group(split_ranks=[[rank] for rank in range(size)])
    array = np.full(2, dist.get_rank())
    dist.broadcast(array, group=backwards, group_src=0)
    assert array[0] == size - 1
    dist.all_reduce(array, group=alone)
    works = [dist.all_reduce(np.ones(count), async_op=True) for _ in range(3)]
    for work in works:
        assert work is not None
        work.wait()
    dist.barrier(backwards)
    dist.destroy_process_group(backwards)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    for count in (1, 1000):
        life(count)
    before = held()
    for count in range(20):
        life(count)
    assert held() == before, f"{before} threads and descriptors before, {held()} after"
    print("fine", flush=True)


main()
