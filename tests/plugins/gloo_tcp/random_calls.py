"""Random collectives, whose results each rank works out by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_gloo_tcp.collectives.opening import inline_nbytes
from rankwise_gloo_tcp.collectives.tables import along_nbytes

DTYPES = [np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_]
#: Values from 0 to 3 of up to five ranks: every sum and every product of them is exact in all of these, in any order.
MERGES: dict[str, Any] = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum, "AVG": np.add}
#: Sizes on whose two sides data goes other ways.
_EDGES = (8, 2 << 10, 8 << 10, 128 << 10, along_nbytes([2, 2]), along_nbytes([2, 2, 1]), inline_nbytes(3), 600_000)


class Draw:
    """What all ranks draw alike."""

    def __init__(self, seed: int, rank: int, size: int) -> None:
        self.random, self.rank, self.size = np.random.default_rng(seed), rank, size

    def one_of(self, things: Any) -> Any:
        """Return one of these."""
        return things[int(self.random.integers(len(things)))]

    def kind(self) -> tuple[Any, str]:
        """Return a dtype and the name of a reduce op that it has."""
        dtype = np.dtype(self.one_of(DTYPES))
        return dtype, self.one_of([name for name in MERGES if name != "AVG" or dtype.kind == "f"])

    def count(self, itemsize: int) -> int:
        """Return a number of elements, often one at which something changes."""
        if self.random.random() < 0.5:
            return int(self.random.integers(0, 300))
        parts = self.one_of((1, self.size))
        return max(0, self.one_of(_EDGES) // itemsize // parts + int(self.random.integers(-1, 2)))

    def tosses(self) -> bool:
        """Return heads or tails."""
        return bool(self.random.integers(2))

    def sizes(self, count: int, parts: int) -> list[int]:
        """Return how long so many parts are: all alike, all but one, or none like any other."""
        how = self.one_of(("alike", "alike", "but one", "unlike"))
        sizes = self.random.permutation(parts) + count if how == "unlike" else np.full(parts, count)
        sizes[int(self.random.integers(parts))] += how == "but one"
        return [int(size) for size in sizes]

    def values(self, count: int, dtype: Any) -> Any:
        """Return a row of values for each rank."""
        return self.random.integers(0, 4, (self.size, count)).astype(dtype)


def merged(rows: Any, name: str) -> Any:
    """Return what the values of all ranks come to."""
    dtype = rows.dtype
    wide = np.dtype(np.float32) if dtype == np.float16 and name in ("SUM", "AVG", "PRODUCT") else dtype
    total = MERGES[name].reduce(rows.astype(wide), axis=0, dtype=wide)
    return (total / wide.type(len(rows)) if name == "AVG" else total).astype(dtype)


def all_reduce(draw: Draw, issue: Callable[..., None]) -> list[tuple[Any, Any]]:
    dtype, name = draw.kind()
    rows = draw.values(draw.count(dtype.itemsize), dtype)
    array = rows[draw.rank].copy()
    issue(dist.all_reduce, array, getattr(dist.ReduceOp, name))
    return [(array, merged(rows, name))]


def reduce(draw: Draw, issue: Callable[..., None]) -> list[tuple[Any, Any]]:
    (dtype, name), root = draw.kind(), draw.one_of(range(draw.size))
    rows = draw.values(draw.count(dtype.itemsize), dtype)
    array = rows[draw.rank].copy()
    issue(dist.reduce, array, root, getattr(dist.ReduceOp, name))
    return [(array, merged(rows, name) if draw.rank == root else rows[draw.rank])]


def broadcast(draw: Draw, issue: Callable[..., None]) -> list[tuple[Any, Any]]:
    (dtype, _), root = draw.kind(), draw.one_of(range(draw.size))
    rows = draw.values(draw.count(dtype.itemsize), dtype)
    array = rows[draw.rank].copy()
    issue(dist.broadcast, array, root)
    return [(array, rows[root])]


def all_gather(draw: Draw, issue: Callable[..., None]) -> list[tuple[Any, Any]]:
    dtype, _ = draw.kind()
    count, how = draw.count(dtype.itemsize), draw.one_of(("list", "in place", "uneven", "single"))
    rows = draw.values(count + 1, dtype)
    expected = [row[: count + (how == "uneven" and rank % 2)] for rank, row in enumerate(rows)]
    if how == "single":
        out, mine = np.zeros(count * draw.size, dtype), expected[draw.rank].copy()
        issue(dist.all_gather_single, out, mine)
        mine.fill(1)
        return [(out, np.concatenate(expected))]
    parts = [np.zeros_like(part) for part in expected]
    mine = parts[draw.rank] if how == "in place" else expected[draw.rank].copy()
    mine[...] = expected[draw.rank]
    issue(dist.all_gather, parts, mine)
    if how != "in place":
        mine.fill(1)
    return list(zip(parts, expected, strict=True))


def reduce_scatter(draw: Draw, issue: Callable[..., None]) -> list[tuple[Any, Any]]:
    dtype, name = draw.kind()
    count, how = draw.count(dtype.itemsize), draw.one_of(("list", "in place", "uneven", "single"))
    sizes = [count + (how == "uneven" and rank % 2) for rank in range(draw.size)]
    rows = draw.values(sum(sizes), dtype)
    ends = np.cumsum([0, *sizes])
    expected = merged(rows, name)[ends[draw.rank] : ends[draw.rank + 1]]
    mine, out = rows[draw.rank].copy(), np.zeros(sizes[draw.rank], dtype)
    op = getattr(dist.ReduceOp, name)
    if how == "single":
        issue(dist.reduce_scatter_single, out, mine, op)
    else:
        parts = [mine[ends[peer] : ends[peer + 1]].copy() for peer in range(draw.size)]
        out = parts[draw.rank] if how == "in place" else out
        issue(dist.reduce_scatter, out, parts, op)
        for part in parts:
            if part is not out:
                part.fill(1)
    mine.fill(1)
    return [(out, expected)]


def gather(draw: Draw, issue: Callable[..., None]) -> list[tuple[Any, Any]]:
    (dtype, _), root, here, in_place = draw.kind(), draw.one_of(range(draw.size)), draw.rank, draw.tosses()
    sizes = draw.sizes(draw.count(dtype.itemsize), draw.size)
    rows = draw.values(max(sizes), dtype)
    expected = [row[:size] for row, size in zip(rows, sizes, strict=True)]
    parts = [np.zeros_like(part) for part in expected] if here == root else None
    mine = parts[root] if parts and in_place else expected[here].copy()
    mine[...] = expected[here]
    issue(dist.gather, mine, parts, root)
    if parts is None:
        mine.fill(1)
    return list(zip(parts or [], expected if parts else [], strict=True))


def scatter(draw: Draw, issue: Callable[..., None]) -> list[tuple[Any, Any]]:
    (dtype, _), root, here, in_place = draw.kind(), draw.one_of(range(draw.size)), draw.rank, draw.tosses()
    sizes = draw.sizes(draw.count(dtype.itemsize), draw.size)
    rows = draw.values(max(sizes), dtype)
    expected = [row[:size] for row, size in zip(rows, sizes, strict=True)]
    parts = [part.copy() for part in expected] if here == root else None
    out = parts[root] if parts and in_place else np.zeros(sizes[here], dtype)
    issue(dist.scatter, out, parts, root)
    for part in parts or []:
        if part is not out:
            part.fill(1)
    return [(out, expected[here])]


def all_to_all(draw: Draw, issue: Callable[..., None]) -> list[tuple[Any, Any]]:
    (dtype, _), size, here = draw.kind(), draw.size, draw.rank
    count, single = draw.count(dtype.itemsize * draw.one_of((1, size))), draw.tosses()
    flat = [count] * size**2 if single else draw.sizes(count, size**2)
    sizes = np.reshape(flat, (size, size))
    values = draw.random.integers(0, 4, (size, size, max(flat))).astype(dtype)
    mine = [values[here, peer, : sizes[here, peer]].copy() for peer in range(size)]
    expected = [values[peer, here, : sizes[peer, here]] for peer in range(size)]
    if single:
        whole, out = np.concatenate(mine), np.zeros(count * size, dtype)
        issue(dist.all_to_all_single, out, whole)
        whole.fill(1)
        return [(out, np.concatenate(expected))]
    parts = [np.zeros_like(part) for part in expected]
    issue(dist.all_to_all, parts, mine)
    for part in mine:
        part.fill(1)
    return list(zip(parts, expected, strict=True))


def barrier(draw: Draw, issue: Callable[..., None]) -> list[tuple[Any, Any]]:
    issue(dist.barrier)
    return []


CALLS = (all_reduce, reduce, broadcast, all_gather, reduce_scatter, gather, scatter, all_to_all, barrier)


def make(draw: Draw, rounds: int) -> int:
    """Make random calls, some of them asynchronous or while a connection is busy; return how many results are wrong.

    What a call was given is overwritten as soon as it has returned.
    """
    wrong, last = 0, draw.size - 1
    long = np.zeros(1_500_000, np.uint8)

    def issue(call: Callable[..., Any], *args: Any) -> None:
        later, busy = draw.random.random() < 0.2, draw.random.random() < 0.1
        before = dist.isend(long, last, tag=5) if busy and draw.rank == 0 else None
        work = call(*args, async_op=later)
        if work is not None:
            work.wait()
        if busy and draw.rank == last:
            dist.recv(np.empty_like(long), 0, tag=5)
        if before is not None:
            before.wait()

    for _ in range(rounds):
        call = draw.one_of(CALLS)
        state = draw.random.bit_generator.state
        for _ in range(2):  # the second time it is known
            draw.random.bit_generator.state = state
            wrong += sum(not np.array_equal(found, expected) for found, expected in call(draw, issue))
    return wrong
