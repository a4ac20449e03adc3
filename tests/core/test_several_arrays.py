"""The calls that take lists of arrays, usually one on each device: compositions of the ordinary ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.threads import on_ranks, run_local

import rankwise as dist

#: An array of which each part that is written to would be wrong where another one lies.
WHOLE = np.ones(4)


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_lists_of_arrays(size: int, async_op: bool) -> None:
    run_local(size, lists, async_op)


def lists(async_op: bool) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = sum(10 * r for r in range(size)) * 2 + size  # of 10 r and 10 r + 1 on each rank

    def two() -> list[Any]:
        return [np.full(3, 10.0 * rank), np.full(3, 10.0 * rank + 1)]

    def done(work: dist.Work | None) -> None:
        assert (work is not None) == async_op
        if work is not None:
            work.wait()

    for op, want in ((dist.ReduceOp.SUM, total), (dist.ReduceOp.AVG, total / (2 * size))):
        done(dist.all_reduce_multigpu(arrays := two(), op, async_op=async_op))
        assert [array[0] for array in arrays] == [want] * 2
    done(dist.reduce_multigpu(arrays := two(), dst=size - 1, dst_tensor=1, async_op=async_op))
    assert arrays[1][0] == (total if rank == size - 1 else 10 * rank + 1)
    assert arrays[0][0] == 10 * rank
    done(dist.broadcast_multigpu(arrays := two(), src=0, src_tensor=1, async_op=async_op))
    assert [array[0] for array in arrays] == [1, 1]
    outputs = [[np.empty(3) for _ in range(2 * size)] for _ in range(2)]
    done(dist.all_gather_multigpu(outputs, two(), async_op=async_op))
    for row in outputs:
        assert [out[0] for out in row] == [10 * r + i for r in range(size) for i in range(2)]
    inputs = [[np.broadcast_to(f * rank + entry, 3) for entry in range(2 * size)] for f in (1, 10)]
    scattered = [np.empty(3, inputs[0][0].dtype) for _ in range(2)]
    done(dist.reduce_scatter_multigpu(scattered, inputs, async_op=async_op))
    wanted = [sum(11 * r + 2 * entry for r in range(size)) for entry in (2 * rank, 2 * rank + 1)]
    assert [out[0] for out in scattered] == wanted


@on_ranks(3)
def test_ranks_may_have_different_numbers_of_arrays() -> None:
    rank = dist.get_rank()
    arrays = [np.full(2, float(rank)) for _ in range(rank + 1)]
    dist.all_reduce_multigpu(arrays, dist.ReduceOp.AVG)
    assert all(array[0] == (0 + 2 * 1 + 3 * 2) / 6 for array in arrays)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dist.all_reduce_multigpu([]), "tensor_list is empty"),
        (lambda: dist.all_reduce_multigpu([np.ones(2), np.ones(3)]), "3 elements"),
        (lambda: dist.broadcast_multigpu([np.ones(2)], 0, src_tensor=1), "src_tensor=1"),
        (lambda: dist.reduce_multigpu([np.ones(2)], 0, dst_tensor=-1), "dst_tensor must not be negative"),
        (lambda: dist.all_gather_multigpu([[np.ones(3)] * 2], [np.ones(3)]), "has 2 arrays, but must have 1 x 1"),
        (lambda: dist.all_gather_multigpu([[np.ones(2)]], [np.ones(3)]), r"output_tensor_lists\[0\]\[0\] has shape"),
        (lambda: dist.all_gather_multigpu([[np.ones(3, int)]], [np.ones(3)]), r"lists\[0\]\[0\] is int64 on cpu, but"),
        (lambda: dist.all_gather_multigpu([], [np.ones(3), np.ones(2)]), r"input_tensor_list\[1\] has shape"),
        (
            lambda: dist.reduce_scatter_multigpu([np.ones(2, int)], [[np.ones(2)]]),
            r"input_tensor_lists\[0\]\[0\] is float64",
        ),
        (lambda: dist.reduce_scatter_multigpu([np.ones(2)], []), "one for each of 1 outputs"),
        (lambda: dist.all_reduce_multigpu([WHOLE[:3], WHOLE[1:]]), "tensor_list shares memory with another"),
        (lambda: dist.broadcast_multigpu([WHOLE[:3], WHOLE[1:]], 0), "tensor_list shares memory with another"),
        (lambda: dist.reduce_scatter_multigpu([WHOLE[:3], WHOLE[1:]], []), "output_tensor_list shares memory with"),
        (
            lambda: dist.all_gather_multigpu([[WHOLE[:3]], [WHOLE[1:]]], [np.ones(3)]),
            "output_tensor_lists shares memory with another",
        ),
    ],
)
@on_ranks(1)
def test_mistakes_are_named(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()
