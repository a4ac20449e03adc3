"""Whatever is plain memory: every layout of it arrives as it was sent, in worlds of sizes that choose algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.kits import dtype_name
from rankwise_testing.suite.expect import begun
from rankwise_testing.suite.layouts import LAYOUTS, data, given, unlike
from rankwise_testing.suite.plugin import Kit
from rankwise_testing.suite.worlds import LARGE_SIZES, MAX_SIZE

_SMALL, _LARGE = (50, 1_100), (140_001,)
#: For large arrays, which take long.
_SOME = (">i8", "padded struct", "big-endian fields")
_MOVING = ("broadcast", "all_gather", "gather", "scatter", "all_to_all", "send")


def check(array: Any, want: Any, what: str) -> None:
    """Raise unless the values are the same."""
    problem = unlike(array, want)
    assert not problem, f"{what}: {problem}"


@pytest.mark.parametrize("size", [2, 3, *LARGE_SIZES])
@pytest.mark.parametrize("op", _MOVING)
def test_every_layout_arrives_as_it_was_sent(kit: Kit, op: str, size: int) -> None:
    kit.on_host_only("CuPy does not have these dtypes")
    ops = ("send", "recv") if op == "send" else (op,)
    names = [n for n, d in LAYOUTS.items() if all(kit.measurements.declares(o, None, dtype_name(d)) for o in ops)]
    if not names:
        kit.require("structured", *ops)
    kit.run(size, move, op, names)


def move(op: str, names: list[str]) -> None:
    few = dist.get_world_size() < MAX_SIZE
    for name in names:
        is_long = name in _SOME and op in (("broadcast", "all_gather", "send") if few else ("broadcast",))
        for count in (*_SMALL[: 2 if few else 1], *(_LARGE if is_long else ())):
            _MOVES[op](LAYOUTS[name], count, f"{op} of {name}")


def _broadcast(dtype: np.dtype[Any], count: int, what: str) -> None:
    root = dist.get_world_size() - 1
    is_root = dist.get_rank() == root
    array = data(dtype, count, 5) if is_root else np.zeros(count, dtype)
    dist.broadcast(array, root)
    check(array, given(dtype, count, 5), what)


def _all_gather(dtype: np.dtype[Any], count: int, what: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = np.zeros((size, count), dtype)
    parts = list(whole) if count % 2 else [np.zeros(count, dtype) for _ in range(size)]
    dist.all_gather(parts, data(dtype, count, rank))
    for source, part in enumerate(parts):
        check(part, given(dtype, count, source), what)


def _gather(dtype: np.dtype[Any], count: int, what: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = list(np.zeros((size, count), dtype)) if rank == 1 else None
    dist.gather(data(dtype, count, rank), parts, dst=1)
    for source, part in enumerate(parts or ()):
        check(part, given(dtype, count, source), what)


def _scatter(dtype: np.dtype[Any], count: int, what: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = list(data(dtype, size * count, 3).reshape(size, count))
    array = np.zeros(count, dtype)
    dist.scatter(array, parts if rank == 1 else None, src=1)
    check(array, parts[rank], what)


def _all_to_all(dtype: np.dtype[Any], count: int, what: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    outs = [np.zeros(count, dtype) for _ in range(size)]
    dist.all_to_all(outs, [data(dtype, count, 10 * rank + to) for to in range(size)])
    for source, out in enumerate(outs):
        check(out, given(dtype, count, 10 * source + rank), what)


def _send(dtype: np.dtype[Any], count: int, what: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    array = np.zeros(count, dtype)
    work = begun(dist.isend(data(dtype, count, rank), (rank + 1) % size))
    dist.recv(array, (rank - 1) % size)
    work.wait()
    check(array, given(dtype, count, (rank - 1) % size), what)


_MOVES = {
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "send": _send,
}

_REDUCED = (">i2", ">i8", ">u4", ">f2", ">f4", ">f8", ">c8")


@pytest.mark.parametrize("size", [2, 3, *LARGE_SIZES])
@pytest.mark.parametrize("op", ["all_reduce", "reduce", "reduce_scatter"])
def test_numbers_of_the_other_byte_order_are_reduced_by_their_values(kit: Kit, op: str, size: int) -> None:
    kit.on_host_only("CuPy does not have these dtypes")
    names = [n for n in _REDUCED if kit.measurements.declares(op, "SUM", dtype_name(np.dtype(n)))]
    if not names:
        kit.require("int64", op, reduce="SUM")
    kit.run(size, add_up, op, names)


def add_up(op: str, names: list[str]) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in names:
        for count in (*_SMALL, *(_LARGE if name == ">i8" and op == "all_reduce" else ())):
            dtype = np.dtype(name)
            mine, total = data(dtype, count, rank), sum(data(np.dtype("i8"), count, r) for r in range(size))
            if op == "all_reduce":
                dist.all_reduce(mine)
            elif op == "reduce":
                dist.reduce(mine, 1)
                total = total if rank == 1 else data(dtype, count, rank)
            else:
                out = np.zeros(count, dtype)
                dist.reduce_scatter(out, [mine.copy() for _ in range(size)])
                mine = out
            check(mine, total.astype(dtype), f"{op} of {name}")
