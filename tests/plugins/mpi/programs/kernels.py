"""Every reduction that is left to the library, as it is used: all ops and dtypes, at the ends of their ranges."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import rankwise as dist
from rankwise import ReduceOp

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16", "m8[s]"]
OPS = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
#: About the lengths of vectors, and one at which the libraries choose another algorithm.
COUNTS = [1, 7, 15, 16, 17, 33, 64, 129, 1021, 20_011]

dist.init_process_group("mpi", timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()


@cache  # it is the same for every op
def data(dtype: np.dtype[Any], count: int, seed: int) -> Any:
    rng = np.random.default_rng([seed, count])
    if dtype.kind in "iuM":
        ends = np.iinfo(dtype)
        whole = rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
        edges = rng.choice(np.array([ends.min, ends.max, 0, 1], dtype), count)
        return np.where(rng.random(count) < 0.5, whole, edges)
    if dtype.kind == "b":
        return rng.random(count) < 0.5
    values = rng.choice([0.0, -0.0, 1.0, 2.0, -3.0, 0.5], count)
    if dtype.kind == "m":
        return np.where(rng.random(count) < 0.2, np.timedelta64("NaT"), values.astype(dtype))
    # One NaN and one infinity for all ranks together: what comes of them must not depend on the order.
    values = np.where(rng.random(count) < 0.1, np.nan, values)
    return values.astype(dtype)


def same(got: Any, wanted: Any) -> bool:
    if got.dtype.kind in "fc":
        return bool(np.array_equal(got, wanted, equal_nan=True))
    return bool(got.tobytes() == wanted.tobytes())


def check(dtype: np.dtype[Any], op: ReduceOp, count: int) -> None:
    what = f"{op} of {dtype} x {count}"
    alls = [data(dtype, count, i) for i in range(size)]
    total = op.accumulator(alls[0])
    for array in alls[1:]:
        op.combine(total, op.accumulator(array))
    wanted = np.empty(count, dtype)
    op.finish(total, wanted, size)

    array = alls[rank].copy()
    dist.all_reduce(array, op)
    assert same(array, wanted), f"all_reduce {what}: {array[array != wanted][:5]} for {wanted[array != wanted][:5]}"
    array = alls[rank].copy()
    dist.reduce(array, 0, op)
    assert rank != 0 or same(array, wanted), f"reduce {what}"
    work = dist.all_reduce(array := alls[rank].copy(), op, async_op=True)
    assert work is not None
    work.wait()
    assert same(array, wanted), f"asynchronous all_reduce {what}"
    out = np.empty(count, dtype)
    dist.reduce_scatter_single(out, np.tile(alls[rank], size), op)
    assert same(out, wanted), f"reduce_scatter {what}"


for name in OPS:
    for letters in DTYPES:
        if ReduceOp(name).defined_for(np.dtype(letters)):
            for count in COUNTS:
                check(np.dtype(letters), ReduceOp(name), count)
dist.destroy_process_group()
print("fine", flush=True)
