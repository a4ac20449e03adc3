"""What reductions promise beyond their cells: the same bits everywhere, wrapping integers."""

from __future__ import annotations

import numpy as np
import pytest

import rankwise as dist
from rankwise.backends import to_host
from rankwise_testing.suite.arrays import on_device, same
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


def test_integers_wrap_around(kit: Kit) -> None:
    if not kit.measurements.declares("all_reduce", "SUM", "int8"):
        pytest.skip(f"backend {kit.spec.name!r} declares no all_reduce(SUM) of int8 on {kit.device}")
    kit.run(2, overflow)


def overflow() -> None:
    array = on_device(np.array([100, -100], np.int8))
    dist.all_reduce(array)
    same(array, np.array([200, -200]).astype(np.int8))
