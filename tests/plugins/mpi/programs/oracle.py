"""Every collective and message, synchronous and asynchronous, against NumPy on the data of all ranks.

Each rank makes the data of every rank from one seed, and so knows what must come out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

import rankwise as dist
from rankwise import ReduceOp

DTYPES = ["?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16", "G", ">i4", ">f8"]
MOVED = [*DTYPES, "M8[us]", "m8[s]", "S5", "U3", "V7", [("a", "i4"), ("b", "f8")]]
COUNTS = [0, 1, 7, 1000, 40_000]


def dtypes(listed: Sequence[Any]) -> Iterator[np.dtype[Any]]:
    yield from map(np.dtype, listed)
    try:
        import ml_dtypes
    except ImportError:
        return
    yield from (np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn))


@cache  # most of it is needed again for every way to call and every reduction
def data(dtype: np.dtype[Any], count: int, seed: int) -> Any:
    rng = np.random.default_rng([seed, count])
    if dtype.kind in "iu":
        return rng.integers(1, 5, count).astype(dtype)
    if dtype.names is not None or (dtype.kind in "SUVMm" and "float" not in dtype.name):
        whole = rng.integers(1, 100, count * dtype.itemsize, dtype=np.uint8)
        if dtype.kind == "U":
            return np.array([f"{n:03d}" for n in rng.integers(0, 999, count)], dtype).reshape(count)
        return whole.view(dtype)
    values = rng.integers(-8, 8, count) / 4
    return (values > 0).astype(dtype) if dtype.kind == "b" else values.astype(dtype)


def same(got: Any, want: Any, what: str) -> None:
    got, want = np.ascontiguousarray(got).reshape(-1), np.ascontiguousarray(want).reshape(-1)
    want = want.astype(got.dtype)  # NumPy concatenates in native byte order
    # The padding of a long double is nobody's, and a complex zero may have either sign.
    equal = np.array_equal(got, want) if got.dtype.char in "gFDG" else got.tobytes() == want.tobytes()
    assert equal, f"{what}: got {got[:8]}, expected {want[:8]}"


def reduced(arrays: list[Any], op: ReduceOp) -> Any:
    total = op.accumulator(arrays[0])
    for array in arrays[1:]:
        op.combine(total, op.accumulator(array))
    out = np.empty_like(arrays[0])
    op.finish(total, out, len(arrays))
    return out


class Checks:
    def __init__(self, group: Any, async_op: bool) -> None:
        self.group, self.async_op = group, async_op
        self.ranks = list(group.ranks)
        self.rank, self.size = group.rank(), group.size()

    def done(self, work: Any) -> None:
        if self.async_op:
            work.wait()
            assert work.is_completed()
            assert work.is_success()

    def moves(self, dtype: np.dtype[Any], count: int) -> None:
        p, me, what = self.size, self.rank, f"{dtype} x {count}"
        alls = [data(dtype, count, 10 * i) for i in range(p)]
        root = p - 1
        terms = {"group": self.group, "async_op": self.async_op}

        array = alls[me].copy()
        self.done(dist.broadcast(array, group_src=root, **terms))
        same(array, alls[root], f"broadcast {what}")

        whole = np.empty(p * count, dtype)
        self.done(dist.all_gather_single(whole, alls[me], **terms))
        same(whole, np.concatenate(alls), f"all_gather_single {what}")

        uneven = [data(dtype, count + i, 10 * i) for i in range(p)]
        apart = [np.empty(count + i, dtype) for i in range(p)]
        self.done(dist.all_gather(apart, uneven[me], **terms))
        same(np.concatenate(apart), np.concatenate(uneven), f"all_gather {what}")

        gathered = [np.empty(count + i, dtype) for i in range(p)] if me == root else None
        self.done(dist.gather(uneven[me], gathered, group_dst=root, **terms))
        if gathered is not None:
            same(np.concatenate(gathered), np.concatenate(uneven), f"gather {what}")

        array = np.empty(count + me, dtype)
        self.done(dist.scatter(array, uneven if me == root else None, group_src=root, **terms))
        same(array, uneven[me], f"scatter {what}")

        # Rank i sends i + j elements more than `count` to rank j.
        table = [[data(dtype, count + i + j, 100 * i + j) for j in range(p)] for i in range(p)]
        outs = [np.empty(count + i + me, dtype) for i in range(p)]
        self.done(dist.all_to_all(outs, table[me], **terms))
        same(np.concatenate(outs), np.concatenate([table[i][me] for i in range(p)]), f"all_to_all {what}")

        self.exchange(dtype, count, alls)

    def exchange(self, dtype: np.dtype[Any], count: int, alls: list[Any]) -> None:
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        got = np.empty(count, dtype)
        works = [
            dist.irecv(got, group=self.group, group_src=left, tag=5),
            dist.isend(alls[self.rank], group=self.group, group_dst=right, tag=5),
        ]
        for work in works:
            assert work is not None
            work.wait()
        assert works[0] is not None
        assert works[0].source_rank() == self.ranks[left]
        same(got, alls[left], f"ring {dtype} x {count}")

    def reductions(self, dtype: np.dtype[Any], count: int) -> None:
        p, me = self.size, self.rank
        terms = {"group": self.group, "async_op": self.async_op}
        for op in (*map(ReduceOp, ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")), None):
            op = op or ReduceOp.PREMUL_SUM(0.5)
            if not op.defined_for(dtype):
                continue
            what = f"{op} of {dtype} x {count}"
            alls = [data(dtype, count, 10 * i) for i in range(p)]
            array = alls[me].copy()
            self.done(dist.all_reduce(array, op, **terms))
            same(array, reduced(alls, op), f"all_reduce {what}")

            array = alls[me].copy()
            self.done(dist.reduce(array, op=op, group_dst=p - 1, **terms))
            same(array, reduced(alls, op) if me == p - 1 else alls[me], f"reduce {what}")

            uneven = [[data(dtype, count + j, 10 * i + j) for j in range(p)] for i in range(p)]
            out = np.empty(count + me, dtype)
            self.done(dist.reduce_scatter(out, uneven[me], op, **terms))
            same(out, reduced([row[me] for row in uneven], op), f"reduce_scatter {what}")

            flat = np.concatenate([data(dtype, count, 10 * me + j) for j in range(p)]).astype(dtype)
            out = np.empty(count, dtype)
            self.done(dist.reduce_scatter_single(out, flat, op, **terms))
            same(out, reduced([data(dtype, count, 10 * i + me) for i in range(p)], op), f"flat {what}")

    def values_that_order_matters_for(self) -> None:
        """NaN wins on whichever rank it is, and everyone has the same bits."""
        for dtype in ("f4", "f8", "f2"):
            for op in (ReduceOp.MIN, ReduceOp.MAX):
                array = np.array([np.nan if self.rank == i % self.size else 1.0 + self.rank for i in range(9)], dtype)
                dist.all_reduce(array, op, self.group)
                assert np.isnan(array).all(), f"{op} of {dtype} lost a NaN: {array}"
        times = np.full(3, self.rank, "m8[s]")
        times[1] = np.timedelta64("NaT") if self.rank == self.size - 1 else times[1]
        dist.all_reduce(times, ReduceOp.SUM, self.group)
        assert np.isnat(times).tolist() == [False, True, False], times
        array = np.random.default_rng(self.rank).standard_normal(5000).astype("f4")
        dist.all_reduce(array, group=self.group)
        everyone = np.empty(5000 * self.size, "f4")
        dist.all_gather_single(everyone, array, self.group)
        same(everyone, np.tile(array, self.size), "bitwise equality on all ranks")


def main() -> None:
    counts = COUNTS if len(sys.argv) < 2 else [int(n) for n in sys.argv[1:]]
    dist.init_process_group("mpi", timeout=60)
    size = dist.get_world_size()
    groups: list[Any] = [dist.group.WORLD]
    if size > 3:  # then a part of it, in another order, is as large as the world of another run
        groups.append(dist.new_group([size - 1, 0, 1], sort_ranks=False, timeout=60))
    for group in groups:
        if group == dist.GroupMember.NON_GROUP_MEMBER:
            continue
        for async_op in (False, True):
            checks = Checks(group, async_op)
            for count in counts:
                for dtype in dtypes(MOVED):
                    checks.moves(dtype, count)
                for dtype in dtypes([*DTYPES, "m8[s]", "M8[us]"]):
                    checks.reductions(dtype, count)
        checks.values_that_order_matters_for()
    dist.barrier()
    dist.destroy_process_group()
    print("fine", flush=True)


main()
