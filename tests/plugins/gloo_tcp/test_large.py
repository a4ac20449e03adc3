"""Arrays beyond what 32 bits can count, and the memory that large arrays take besides their own."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import numpy as np
import pytest

import rankwise as dist
from rankwise_testing import RankPool

PATIENCE_S = 600.0

MIB = 1 << 20
#: What a rank may hold besides the arrays of the program.
BOUND_NBYTES = 64 * MIB


@pytest.fixture
def pool() -> Iterator[RankPool]:
    with RankPool(2, env={"RANKWISE_GLOO_TRANSPORT": "tcp"}) as pool:
        yield pool


def peak_nbytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def extra_memory(op: str, dtype: str, algorithm: str) -> int:
    """Return by how much a collective on 96 MiB and more raises the peak of a rank's memory."""
    if algorithm:
        os.environ["RANKWISE_GLOO_ALGORITHMS"] = f"{op}={algorithm}"
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    a = np.ones(96 * MIB // np.dtype(dtype).itemsize, dtype)
    out = np.ones(a.size // 2, dtype)
    before = peak_nbytes()
    if op == "all_reduce":
        dist.all_reduce(a)
        assert a[0] == a[-1] == 2
    elif op == "reduce":
        dist.reduce(a, 0)
        assert a[0] == a[-1] == (2 if rank == 0 else 1)
    elif op == "reduce_scatter":
        dist.reduce_scatter_tensor(out, a)
        assert out[0] == out[-1] == 2
    else:
        dist.broadcast(a, 0)
    dist.destroy_process_group()
    return peak_nbytes() - before


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("op", "algorithm"),
    [("all_reduce", ""), ("all_reduce", "derived"), ("reduce", ""), ("reduce_scatter", ""), ("broadcast", "")],
)
def test_a_rank_holds_little_besides_the_arrays(pool: RankPool, op: str, dtype: str, algorithm: str) -> None:
    for extra in pool.run(extra_memory, op, dtype, algorithm):
        assert extra < BOUND_NBYTES


def beyond_32_bits() -> None:
    dist.init_process_group("gloo", timeout=300)
    rank = dist.get_rank()
    a = np.zeros((1 << 31) + 5, np.uint8)
    a[-1] = a[0] = rank + 1
    dist.all_reduce(a)
    assert a[0] == a[-1] == 3
    assert not a[1:-1:4095].any()
    a[-1] = rank
    dist.broadcast(a, 1)
    assert a[-1] == 1
    if rank == 0:
        a[-2] = 7
        dist.send(a, 1)
    else:
        dist.recv(a, 0)
        assert a[-2] == 7
    dist.destroy_process_group()


@pytest.mark.skipif(
    "RANKWISE_TEST_LARGE" not in os.environ, reason="takes minutes and 5 GiB; set RANKWISE_TEST_LARGE=1"
)
def test_arrays_beyond_2_gib_travel(pool: RankPool) -> None:
    pool.run(beyond_32_bits, timeout=PATIENCE_S)
