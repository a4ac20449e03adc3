"""The calls for several devices per process, which take lists of arrays."""

from __future__ import annotations

import numpy as np

import rankwise as dist
from rankwise.testing.suite.arrays import same
from rankwise.testing.suite.expect import numbers
from rankwise.testing.suite.plugin import Kit, needs


@needs("broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter")
def test_lists_of_arrays(kit: Kit) -> None:
    for size in (1, 2, 3):
        kit.run(size, lists)


def lists() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = sum(10 * r for r in range(size)) * 2 + size  # of 10 r and 10 r + 1 on each rank
    arrays = [numbers(10 * rank), numbers(10 * rank + 1)]
    dist.all_reduce_multigpu(arrays)
    _all_same(arrays, [total, total])

    arrays = [numbers(10 * rank), numbers(10 * rank + 1)]
    dist.reduce_multigpu(arrays, dst=size - 1, dst_tensor=1)
    if rank == size - 1:
        same(arrays[1], np.array([total], np.float32))

    arrays = [numbers(10 * rank), numbers(10 * rank + 1)]
    dist.broadcast_multigpu(arrays, src=0, src_tensor=1)
    _all_same(arrays, [1, 1])

    inputs = [numbers(10 * rank), numbers(10 * rank + 1)]
    outputs = [[numbers(-1) for _ in range(2 * size)] for _ in range(2)]
    dist.all_gather_multigpu(outputs, inputs)
    for row in outputs:
        _all_same(row, [10 * r + i for r in range(size) for i in range(2)])

    lists_in = [[numbers(rank + entry) for entry in range(size)]]
    scattered = [numbers(-1)]
    dist.reduce_scatter_multigpu(scattered, lists_in)
    _all_same(scattered, [sum(r + rank for r in range(size))])


def _all_same(arrays: list[object], wanted: list[float]) -> None:
    for array, want in zip(arrays, wanted, strict=True):
        same(array, np.array([want], np.float32))
