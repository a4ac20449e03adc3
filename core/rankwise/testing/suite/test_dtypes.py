"""Whatever is plain memory: every layout of it arrives as it was sent, in worlds of sizes that choose algorithms."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.basics.arrays import dtype_name
from rankwise.testing.suite.expect import begun
from rankwise.testing.suite.plugin import Kit
from rankwise.testing.suite.worlds import LARGE_SIZES, MAX_SIZE

_INNER = np.dtype([("x", ">u2"), ("y", "<f8"), ("z", "S3")])
#: Dtypes that a copy which goes by values, or by the machine's own order, gets wrong.
DTYPES: dict[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in ("<i4", ">i4", ">i8", ">u2", ">u8", ">f2", ">f4", ">f8", ">c8", ">c16")},
    **{name: np.dtype(name) for name in ("M8[ns]", ">M8[s]", "m8[D]", ">m8[us]", "?", "S7", "<U2", ">U3", "V3", "V16")},
    "longdouble in the other order": np.dtype(np.longdouble).newbyteorder(),
    "packed struct": np.dtype([("a", "i1"), ("b", "<f8"), ("c", "<u2")]),
    "padded struct": np.dtype([("a", "i1"), ("b", "<f8"), ("c", "<u2")], align=True),
    "struct with a tail": np.dtype({"names": ["a", "b"], "formats": ["<i4", "u1"], "offsets": [8, 3], "itemsize": 24}),
    "big-endian fields": np.dtype([("a", ">i4"), ("b", ">f8")]),
    "mixed fields": np.dtype([("a", ">i4"), ("b", "<f8"), ("c", "M8[s]"), ("d", "?")], align=True),
    "nested struct": np.dtype([("head", _INNER), ("row", _INNER, (2,)), ("n", ">i8")], align=True),
    "struct of arrays": np.dtype([("a", ">f4", (2, 2)), ("b", "S1", (3,))]),
}
_SMALL, _LARGE = (50, 1_100), (140_001,)
#: For large arrays, which take long.
_SOME = (">i8", "padded struct", "big-endian fields")
_MOVING = ("broadcast", "all_gather", "gather", "scatter", "all_to_all", "send")


def data(dtype: np.dtype[Any], count: int, salt: int) -> Any:
    """Return an array with values of a dtype that differ by position and salt; comparable, so no number is NaN."""
    return _made(dtype, count, salt).copy()


@lru_cache(maxsize=4096)
def _made(dtype: np.dtype[Any], count: int, salt: int) -> Any:
    numbers = (np.arange(count) * 7 + salt * 31) % 97 + 1
    if dtype.names is not None:
        array = np.zeros(count, dtype)
        for i, name in enumerate(dtype.names):
            field = array[name]
            inner = data(dtype[name].base, field.size, salt + i)
            field[...] = inner.reshape(field.shape)
        return array
    if dtype.kind == "V":
        raw = (numbers[:, None] + np.arange(dtype.itemsize)).astype(np.uint8)
        return raw.reshape(-1).view(dtype)
    if dtype.kind in "Mm":
        return numbers.astype(np.int64).astype(dtype)
    return (numbers % 2 == 0 if dtype.kind == "b" else numbers).astype(dtype)


def check(array: Any, want: Any, what: str) -> None:
    """Raise unless the values are the same; what is between fields is nobody's business."""
    if not np.array_equal(array, want):
        first = int(np.flatnonzero(array != want)[0])
        raise AssertionError(f"{what}: element {first} of {array.size} is {array[first]!r} and should be {want[first]!r}")


@pytest.mark.parametrize("size", [2, 3, *LARGE_SIZES])
@pytest.mark.parametrize("op", _MOVING)
def test_every_layout_arrives_as_it_was_sent(kit: Kit, op: str, size: int) -> None:
    kit.on_host_only("CuPy does not have these dtypes")
    ops = ("send", "recv") if op == "send" else (op,)
    names = [n for n, d in DTYPES.items() if all(kit.measurements.declares(o, None, dtype_name(d)) for o in ops)]
    if not names:
        kit.require("structured", *ops)
    kit.run(size, move, op, names)


def move(op: str, names: list[str]) -> None:
    for name in names:
        counts = (*_SMALL[: 2 if dist.get_world_size() < MAX_SIZE else 1], *(_LARGE if name in _SOME and op in ("broadcast", "all_gather", "send") else ()))
        for count in counts:
            _MOVES[op](DTYPES[name], count, f"{op} of {name}")


def _broadcast(dtype: np.dtype[Any], count: int, what: str) -> None:
    root = dist.get_world_size() - 1
    is_root = dist.get_rank() == root
    array = data(dtype, count, 5) if is_root else np.zeros(count, dtype)
    dist.broadcast(array, root)
    check(array, _made(dtype, count, 5), what)


def _all_gather(dtype: np.dtype[Any], count: int, what: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = np.zeros((size, count), dtype)
    parts = list(whole) if count % 2 else [np.zeros(count, dtype) for _ in range(size)]
    dist.all_gather(parts, data(dtype, count, rank))
    for source, part in enumerate(parts):
        check(part, _made(dtype, count, source), what)


def _gather(dtype: np.dtype[Any], count: int, what: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = list(np.zeros((size, count), dtype)) if rank == 1 else None
    dist.gather(data(dtype, count, rank), parts, dst=1)
    for source, part in enumerate(parts or ()):
        check(part, _made(dtype, count, source), what)


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
        check(out, _made(dtype, count, 10 * source + rank), what)


def _send(dtype: np.dtype[Any], count: int, what: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    array = np.zeros(count, dtype)
    work = begun(dist.isend(data(dtype, count, rank), (rank + 1) % size))
    dist.recv(array, (rank - 1) % size)
    work.wait()
    check(array, _made(dtype, count, (rank - 1) % size), what)


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
