"""What reductions do in between: the width they work in, factors, the smallest numbers."""

from __future__ import annotations

import numpy as np
import pytest

import rankwise as dist
from rankwise import ReduceOp
from rankwise.kits import REDUCE_OP_TABLE
from rankwise_testing.suite.arrays import dtype_named
from rankwise_testing.suite.plugin import Kit
from rankwise_testing.suite.reducing import compare, reduced
from rankwise_testing.suite.worlds import REDUCING

_SIZES = (1, 2, 3, 5)

#: What three ranks reduce of 16 bits. Each result fits, and is exact in float32 in whatever order; what comes in
#: between does not fit into 16 bits, or loses the small numbers there.
_NARROW = {
    "SUM": ((2048, 1, 1), (256, 1, 1), (-60_000, 60_000, 60_000), (60_000, 60_000, -60_000)),
    "AVG": ((60_000, 60_000, 60_000), (-65_472, -65_472, -32), (2048, 1, 1)),
    "PRODUCT": ((300, 300, 2**-10), (2**-12, 2**-13, 2**15), (-512, 512, 2**-12)),
    "PREMUL_SUM": ((60_000, -60_000, 5), (2048, 1, 1), (-65_472, 65_472, 65_472)),
}
_FACTORS = (2, 2, 1)


@pytest.mark.parametrize("op", REDUCING)
@pytest.mark.parametrize("reduce", list(_NARROW))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_reduced_in_float32(kit: Kit, op: str, reduce: str, dtype: str) -> None:
    """A result that fits is right, whatever comes in between."""
    kit.on_host_only("the width of its accumulator is a GPU library's own affair")
    kit.require(dtype, op, reduce=reduce)
    kit.run(3, reduce_narrow, op, reduce, dtype)


def reduce_narrow(op: str, reduce: str, name: str) -> None:
    rank, dtype = dist.get_rank(), dtype_named(name)
    for count in (1, 1000):
        arrays = [np.repeat([row[r] for row in _NARROW[reduce]], count).astype(dtype) for r in range(3)]
        wide = [array.astype(np.float64) for array in arrays]
        if reduce == "PREMUL_SUM":
            wide = [array * factor for array, factor in zip(wide, _FACTORS, strict=True)]
        total = REDUCE_OP_TABLE[reduce].ufunc.reduce(wide)
        want = (total / 3 if reduce == "AVG" else total).astype(np.float32).astype(dtype)
        how = ReduceOp.PREMUL_SUM(_FACTORS[rank]) if reduce == "PREMUL_SUM" else ReduceOp(reduce)
        compare(op, reduce, reduced(op, how, arrays[rank]), want)


@pytest.mark.parametrize("op", REDUCING)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_each_rank_has_its_own_factor_to_the_last_bit(kit: Kit, op: str, dtype: str) -> None:
    """Fixed factors and drawn ones: complex on complex arrays, of full precision, in a world of one too."""
    kit.require(dtype, op, reduce="PREMUL_SUM")
    for size in kit.sizes(*_SIZES):
        kit.run(size, weigh, op, dtype, kit.seed)


def weigh(op: str, name: str, seed: int) -> None:
    rank, size, dtype = dist.get_rank(), dist.get_world_size(), dtype_named(name)
    drawn = np.random.default_rng([seed, size])
    fixed = [[0.1 * (r + 1) for r in range(size)], [3.0] * size, [-1.0 / (r + 3) for r in range(size)], [0.5] * size]
    for number, factors in enumerate([*fixed, *drawn.standard_normal((3, size)).tolist()]):
        if dtype.kind == "c" and number % 2 == 0:
            factors = [complex(factor, 2.0 + r) for r, factor in enumerate(factors)]
        # Of one sign, so that no digits are lost in the sum.
        arrays = [
            np.abs(np.random.default_rng([seed, number, r]).standard_normal(65)).astype(dtype) for r in range(size)
        ]
        wide = [a.astype(np.result_type(dtype, np.float64)) * f for a, f in zip(arrays, factors, strict=True)]
        got = reduced(op, ReduceOp.PREMUL_SUM(factors[rank]), arrays[rank])
        if got is not None:
            room = sum(map(np.abs, wide))  # complex products and factors of several signs may cancel
            near = np.abs(got - sum(wide)) <= 8 * float(np.finfo(dtype).eps) * room
            assert near.all(), f"{op} of {size} ranks by {factors} gave {got[~near][0]!r}, not {sum(wide)[~near][0]!r}"


@pytest.mark.parametrize("op", REDUCING)
@pytest.mark.parametrize("reduce", ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "PREMUL_SUM"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_subnormals_are_numbers(kit: Kit, op: str, reduce: str, dtype: str) -> None:
    """Neither as they are given nor as they come out are the smallest numbers zero."""
    kit.on_host_only("whether it flushes subnormals is a GPU library's own affair")
    kit.require(dtype, op, reduce=reduce)
    for size in kit.sizes(1, 2, 3):
        kit.run(size, reduce_subnormals, op, reduce, dtype)


def reduce_subnormals(op: str, reduce: str, name: str) -> None:
    rank, size, dtype = dist.get_rank(), dist.get_world_size(), np.dtype(name)
    least = np.finfo(dtype).smallest_subnormal
    tiny = np.array([least * k for k in (1, 2, 3, 5, 8, -1, -7)] * 20, dtype)
    if reduce == "PRODUCT":
        # The first rank's is normal, and the product is not.
        mine = tiny * dtype.type(1024) if rank == 0 else np.full_like(tiny, 0.0009765625 if rank == 1 else 1)
        want = tiny if size > 1 else tiny * dtype.type(1024)
    else:
        mine, want = tiny * dtype.type(3), tiny * dtype.type(3 * size if reduce == "SUM" else 3)
    if reduce == "PREMUL_SUM":
        want = tiny * dtype.type(6 * size)
    how = ReduceOp.PREMUL_SUM(2) if reduce == "PREMUL_SUM" else ReduceOp(reduce)
    compare(op, reduce, reduced(op, how, mine), want)


@pytest.mark.parametrize("op", REDUCING)
@pytest.mark.parametrize("reduce", ["SUM", "AVG", "PRODUCT", "MIN", "MAX"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "longdouble", "complex64", "complex128", "clongdouble"])
def test_every_bit_of_a_number_counts(kit: Kit, op: str, reduce: str, dtype: str) -> None:
    """Numbers next to one come out as they are where they are all, the only ones, or the least."""
    kit.require(dtype, op, reduce=reduce)
    for size in kit.sizes(1, 2, 3):
        kit.run(size, reduce_full, op, reduce, dtype)


def reduce_full(op: str, reduce: str, name: str) -> None:
    dtype, rank, size = dtype_named(name), dist.get_rank(), dist.get_world_size()
    given = (1 + np.finfo(dtype).eps * np.arange(1, 9)).astype(dtype)
    others = {"SUM": 0, "PRODUCT": 1, "MIN": 2, "MAX": -2}
    first = rank == size - 1 or reduce not in others
    mine = given if first else np.full_like(given, others[reduce])
    if reduce == "AVG" and size == 3:  # a third of a sum of three is not exact
        return
    compare(op, reduce, reduced(op, ReduceOp(reduce), mine), given)
