"""Values that arithmetic gets wrong: NaN and -0.0, the ends of the integers, all 64 bits, the very end of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise import ReduceOp
from rankwise.backends import to_host
from rankwise.kits import REDUCE_OP_TABLE
from rankwise_testing.suite.arrays import device, dtype_named, on_device
from rankwise_testing.suite.plugin import Kit
from rankwise_testing.suite.reducing import compare, reduced
from rankwise_testing.suite.worlds import LARGE_SIZES

_SIZES = (2, 3, LARGE_SIZES[0])
_REDUCING = ("all_reduce", "reduce", "reduce_scatter")
_SIGNED, _UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
#: Lengths with and without a rest beyond a vector, and one of several pieces.
_COUNTS = (1, 17, 70_001)


def expected(reduce: str, arrays: list[Any]) -> Any:
    """Return what NumPy makes of the arrays of all ranks."""
    total = arrays[0].copy()
    with np.errstate(all="ignore"):
        for array in arrays[1:]:
            REDUCE_OP_TABLE[reduce].ufunc(total, array, out=total)
    return total


@pytest.mark.parametrize("op", _REDUCING)
@pytest.mark.parametrize("reduce", ["MIN", "MAX", "SUM"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "datetime64", "timedelta64"])
def test_nan_wins(kit: Kit, op: str, reduce: str, dtype: str) -> None:
    """As in NumPy, from whichever rank it comes; and NaT likewise."""
    kit.on_host_only("what MIN and MAX make of NaN is a GPU library's own affair")
    kit.require(dtype, op, reduce=reduce)
    for size in kit.sizes(*_SIZES):
        kit.run(size, reduce_nan, op, reduce, dtype)


def reduce_nan(op: str, reduce: str, name: str) -> None:
    dtype = dtype_named(name)
    nothing = np.array("NaT" if dtype.kind in "mM" else np.nan, dtype)
    size = dist.get_world_size()
    for count in _COUNTS:
        arrays: list[Any] = []
        for rank in range(size):
            array = ((np.arange(count) * 3 + rank * 5) % 11 - 5).astype(np.int64).astype(dtype)
            array[rank :: size + 1] = nothing
            array[-1] = arrays[0][-1] if rank else nothing
            arrays.append(array)
        compare(op, reduce, reduced(op, ReduceOp(reduce), arrays[dist.get_rank()]), expected(reduce, arrays))


@pytest.mark.parametrize("op", _REDUCING)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_of_negative_zeros_and_infinities(kit: Kit, op: str, dtype: str) -> None:
    kit.require(dtype, op, reduce="SUM")
    for size in kit.sizes(*_SIZES):
        kit.run(size, sum_of_zeros, op, dtype)


def sum_of_zeros(op: str, name: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    kinds = [
        [-0.0] * size,
        [np.inf] + [1.0] * (size - 1),
        [np.inf, -np.inf] + [0.0] * (size - 2),
        [np.nan] + [1.0] * (size - 1),
    ]
    arrays = [np.array([kind[r] for kind in kinds] * 50, name) for r in range(size)]
    got, want = reduced(op, ReduceOp.SUM, arrays[rank]), expected("SUM", arrays)
    compare(op, "SUM", got, want)
    if got is not None and device() == "cpu":
        assert np.signbit(got[::4]).all(), "the sum of negative zeros is not -0.0"


@pytest.mark.parametrize("op", _REDUCING)
@pytest.mark.parametrize("reduce", ["MIN", "MAX"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_zeros_keep_their_sign_in_min_and_max(kit: Kit, op: str, reduce: str, dtype: str) -> None:
    """Where all are alike there is nothing to choose; where they differ, all ranks choose the same."""
    kit.on_host_only("what MIN and MAX make of zeros is a GPU library's own affair")
    kit.require(dtype, op, reduce=reduce)
    for size in kit.sizes(*_SIZES):
        answers = kit.run(size, signs_of_zeros, op, reduce, dtype)
        mixed = {answer for answer in answers if answer}
        assert op != "all_reduce" or len(mixed) == 1, "the ranks chose different zeros"


def signs_of_zeros(op: str, reduce: str, name: str) -> bytes:
    rank = dist.get_rank()
    for sign in (-1, 1):
        for count in _COUNTS:
            got = reduced(op, ReduceOp(reduce), np.copysign(np.zeros(count, name), sign).astype(name))
            if got is not None:
                assert (np.signbit(got) == (sign < 0)).all(), f"{op}({reduce}) of zeros of one sign has another"
    mixed = reduced(op, ReduceOp(reduce), np.copysign(np.zeros(37, name), (-1) ** (np.arange(37) + rank)).astype(name))
    return b"" if mixed is None else bytes(mixed.tobytes())


def _ends(dtype: np.dtype[Any], count: int, rank: int) -> Any:
    """Return integers around the ends of their range, which differ by rank and position."""
    info = np.iinfo(dtype)
    ends = [info.max, info.min, info.max - 1, info.min + 1, info.max // 2 + 1, info.max // 2, 0, 1, info.max // 3]
    return np.array([ends[(i + 4 * rank * (i % 3)) % len(ends)] for i in range(min(count, 500))], dtype).repeat(
        count // 500 + 1
    )[:count]


@pytest.mark.parametrize("op", _REDUCING)
@pytest.mark.parametrize("reduce", ["MIN", "MAX", "SUM", "PRODUCT", "BAND", "BOR", "BXOR"])
def test_integers_at_the_ends_of_their_range(kit: Kit, op: str, reduce: str) -> None:
    """Beyond 2**63 they are large, not negative; sums and products wrap around; every bit counts."""
    names = [name for name in (*_SIGNED, *_UNSIGNED) if kit.measurements.declares(op, reduce, name)]
    if not names:
        kit.require("int64", op, reduce=reduce)
    for size in kit.sizes(*_SIZES):
        kit.run(size, at_the_ends, op, reduce, names)


def at_the_ends(op: str, reduce: str, names: list[str]) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in names:
        for count in _COUNTS:
            arrays = [_ends(np.dtype(name), count, r) for r in range(size)]
            compare(op, reduce, reduced(op, ReduceOp(reduce), arrays[rank]), expected(reduce, arrays))


@pytest.mark.parametrize("op", _REDUCING)
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_products_that_need_all_their_bits(kit: Kit, op: str, dtype: str) -> None:
    kit.require(dtype, op, reduce="PRODUCT")
    kit.run(2, full_products, op, dtype)


def full_products(op: str, dtype: str) -> None:
    factors = [np.array([3037000499, 2**31 - 1, 2**32 + 15, 94906267, 1, 7], dtype) * k for k in (1, 1)]
    factors[1] += np.array([1, 2, 4, 0, 2**62, 2**60], dtype)
    compare(op, "PRODUCT", reduced(op, ReduceOp.PRODUCT, factors[dist.get_rank()]), expected("PRODUCT", factors))


#: Elements of float32: somewhat more than 4, 8 and 16 MiB, and 4 MiB exactly.
_LONG = (1 << 20, (1 << 20) + 1, (2 << 20) + 3, (4 << 20) + 5)


@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_long_arrays_are_right_to_their_very_end(kit: Kit, op: str) -> None:
    kit.require("float32", op, reduce="SUM")
    kit.run(3, to_the_end, op)


def to_the_end(op: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in _LONG if op in ("all_reduce", "broadcast") else _LONG[1:2]:
        base = (np.arange(count, dtype=np.float32) % 1021) + 1
        mine = base * (rank + 1)
        if op == "all_reduce":
            array = on_device(mine)
            dist.all_reduce(array)
            _all_right(op, array, base * 6)
        elif op == "broadcast":
            array = on_device(mine)
            dist.broadcast(array, 1)
            _all_right(op, array, base * 2)
        elif op == "reduce":
            array = on_device(mine)
            dist.reduce(array, 1)
            _all_right(op, array, base * 6 if rank == 1 else mine)
        elif op == "all_gather":
            parts = [on_device(np.zeros(count, np.float32)) for _ in range(size)]
            dist.all_gather(parts, on_device(mine))
            for source, part in enumerate(parts):
                _all_right(op, part, base * (source + 1))
        elif op == "reduce_scatter":
            array = on_device(np.zeros(count, np.float32))
            dist.reduce_scatter(array, [on_device(mine + to) for to in range(size)])
            _all_right(op, array, base * 6 + 3 * rank)
        else:
            parts = [on_device(np.zeros(count, np.float32)) for _ in range(size)]
            dist.all_to_all(parts, [on_device(mine + to) for to in range(size)])
            for source, part in enumerate(parts):
                _all_right(op, part, base * (source + 1) + rank)


def _all_right(op: str, array: Any, want: Any) -> None:
    wrong = np.flatnonzero(to_host(array) != want)
    assert not wrong.size, f"{op}: {wrong.size} of {want.size} elements are wrong, from {wrong[0]} to {wrong[-1]}"
