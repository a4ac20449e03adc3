"""The calls for several devices per process, which take lists of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import rankwise as dist
from rankwise.testing.suite.arrays import last_device, same
from rankwise.testing.suite.expect import numbers
from rankwise.testing.suite.plugin import Kit, needs


@needs("broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter")
def test_lists_of_arrays(kit: Kit) -> None:
    for size in (1, 2, 3):
        kit.run(size, lists)


def lists() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = sum(10 * r for r in range(size)) * 2 + size  # of 10 r and 10 r + 1 on each rank
    arrays = _two(rank)
    dist.all_reduce_multigpu(arrays)
    _all_same(arrays, [total, total])

    arrays = _two(rank)
    dist.reduce_multigpu(arrays, dst=size - 1, dst_tensor=1)
    if rank == size - 1:
        same(arrays[1], np.array([total], np.float32))

    arrays = _two(rank)
    dist.broadcast_multigpu(arrays, src=0, src_tensor=1)
    _all_same(arrays, [1, 1])

    inputs = _two(rank)
    outputs = [[numbers(-1) for _ in range(2 * size)]]
    with last_device():
        outputs.append([numbers(-1) for _ in range(2 * size)])
    dist.all_gather_multigpu(outputs, inputs)
    for row in outputs:
        _all_same(row, [10 * r + i for r in range(size) for i in range(2)])

    lists_in, scattered = [[numbers(rank + entry) for entry in range(2 * size)]], [numbers(-1)]
    with last_device():
        lists_in.append([numbers(10 * rank + entry) for entry in range(2 * size)])
        scattered.append(numbers(-1))
    dist.reduce_scatter_multigpu(scattered, lists_in)
    _all_same(scattered, [sum(11 * r + 2 * entry for r in range(size)) for entry in (2 * rank, 2 * rank + 1)])


def _two(rank: int) -> list[Any]:
    """Return two arrays, on two devices if there are as many."""
    first = numbers(10 * rank)
    with last_device():
        return [first, numbers(10 * rank + 1)]


def _all_same(arrays: list[object], wanted: list[float]) -> None:
    for array, want in zip(arrays, wanted, strict=True):
        same(array, np.array([want], np.float32))
