"""What reductions promise beyond their cells: precision, the same bits everywhere, wrapping integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise import ReduceOp
from rankwise_testing.suite.arrays import dtype_named, on_device, same, to_host, why_not
from rankwise_testing.suite.plugin import Kit

_COUNTS = (1, 2, 1000, 70_001)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_ranks_get_the_same_bits_every_time(kit: Kit, size: int) -> None:
    """The order of a float sum changes its last bits; it must not depend on rank or run."""
    kit.require("float32", "all_reduce", reduce="SUM")
    first, again = kit.run(size, sums), kit.run(size, sums)
    assert all(answer == first[0] for answer in first), "the ranks got different bits"
    assert again == first, "another run gave different bits"


def sums() -> list[bytes]:
    rank, size = dist.get_rank(), dist.get_world_size()
    found = []
    for count in _COUNTS:
        data = [np.random.default_rng([count, r]).standard_normal(count).astype(np.float32) for r in range(size)]
        array = on_device(data[rank])
        dist.all_reduce(array)
        np.testing.assert_allclose(to_host(array), np.sum(data, axis=0, dtype=np.float64), rtol=1e-4, atol=1e-5)
        found.append(to_host(array).tobytes())
    return found


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_summed_in_float32(kit: Kit, dtype: str) -> None:
    if kit.device != "cpu":
        pytest.skip("the width of its accumulator is a GPU library's own affair")
    if reason := why_not(dtype, kit.device):
        pytest.skip(reason)
    for op in ("all_reduce", "reduce", "reduce_scatter"):
        if not kit.measurements.declares(op, "SUM", dtype):
            pytest.skip(f"backend {kit.spec.name!r} declares no {op}(SUM) of {dtype} on {kit.device}")
    kit.run(4, sum_narrow, dtype)


def sum_narrow(dtype: str) -> None:
    # Summed in its own width, a large number swallows each of the small ones.
    large = {"float16": 2048, "bfloat16": 256}[dtype]
    rank, size = dist.get_rank(), dist.get_world_size()
    value = large if rank == 0 else 1 if rank < 3 else 0
    want = np.full(4, large + 2).astype(dtype_named(dtype))
    mine = np.full(4, value).astype(dtype_named(dtype))
    array = on_device(mine)
    dist.all_reduce(array)
    same(array, want)
    array = on_device(mine)
    dist.reduce(array, dst=1)
    same(array, want if rank == 1 else mine)
    array = on_device(mine)
    dist.reduce_scatter(array, [on_device(mine) for _ in range(size)])
    same(array, want)


def test_integers_wrap_around(kit: Kit) -> None:
    if not kit.measurements.declares("all_reduce", "SUM", "int8"):
        pytest.skip(f"backend {kit.spec.name!r} declares no all_reduce(SUM) of int8 on {kit.device}")
    kit.run(2, overflow)


def overflow() -> None:
    array = on_device(np.array([100, -100], np.int8))
    dist.all_reduce(array)
    same(array, np.array([200, -200]).astype(np.int8))


def test_each_rank_has_its_own_factor(kit: Kit) -> None:
    if not kit.measurements.declares("all_reduce", "PREMUL_SUM", "float32"):
        pytest.skip(f"backend {kit.spec.name!r} declares no all_reduce(PREMUL_SUM) of float32 on {kit.device}")
    kit.run(3, weighted)


def weighted() -> None:
    rank = dist.get_rank()
    array: Any = on_device(np.array([2, 4], np.float32))
    dist.all_reduce(array, ReduceOp.PREMUL_SUM(0.5 * (rank + 1)))
    same(array, np.array([6, 12], np.float32))
