"""Random collectives and messages, whose results each rank works out by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import described_calls
import numpy as np

import rankwise as dist
from rankwise_gloo_tcp.collectives.opening import inline_nbytes
from rankwise_gloo_tcp.collectives.tables import along_nbytes

#: Those that C knows, and those that it leaves to Python.
DTYPES: list[Any] = [np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_]
OTHER_DTYPES: list[Any] = [np.longdouble, np.complex64, ">f8", ">i4", np.uint16]
#: Values from 0 to 3 of up to six ranks: every sum and every product of them is exact in all of these, in any order.
MERGES: dict[str, Any] = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum, "AVG": np.add}
#: Sizes on whose two sides data goes other ways.
_EDGES = (8, 2 << 10, 8 << 10, 128 << 10, along_nbytes([2, 2]), along_nbytes([2, 2, 1]), inline_nbytes(3), 600_000)


class Draw:
    """What all ranks draw alike.

    Attributes:
        rank, size: Of this rank's group.
        ranks: What it calls its members elsewhere.
    """

    def __init__(self, seed: Any, rank: int, size: int, ranks: Sequence[int] = ()) -> None:
        self.random, self.rank, self.size = np.random.default_rng(seed), rank, size
        self.ranks = ranks or range(size)

    def one_of(self, things: Any) -> Any:
        """Return one of these."""
        return things[int(self.random.integers(len(things)))]

    def kind(self) -> tuple[Any, str]:
        """Return a dtype and the name of a reduce op that it has."""
        dtype = np.dtype(self.one_of(OTHER_DTYPES if self.random.random() < 0.2 else DTYPES))
        names = ["SUM", "PRODUCT"] if dtype.kind == "c" else list(MERGES)
        return dtype, self.one_of([name for name in names if name != "AVG" or dtype.kind == "f"])

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

    def shaped(self, flat: Any) -> Any:
        """Return a view of a flat array, of up to three dimensions; what is drawn does not depend on its size."""
        dimensions, *draws = (int(number) for number in self.random.integers(4 * 5 * 6 * 7, size=3))
        shape = [flat.size]
        for drawn in draws[: dimensions % 4 - 1]:
            factors = [factor for factor in range(1, 8) if shape[-1] % factor == 0]
            factor = factors[drawn % len(factors)]
            shape[-1:] = [factor, shape[-1] // factor]
        return flat.reshape(() if dimensions % 4 == 0 and flat.size == 1 else shape)

    def laid_out(self, array: Any) -> Any:
        """Return a copy of an array that is only read, which may lie in memory in other ways."""
        how = self.one_of(("as it is", "as it is", "in columns", "with gaps", "backwards"))
        if how == "as it is" or not array.ndim:
            return array.copy()
        if how == "in columns":
            return np.array(array, order="F")
        step = 2 if how == "with gaps" else -1
        found = np.zeros((array.shape[0] * abs(step), *array.shape[1:]), array.dtype)[::step]
        found[...] = array
        return found


def merged(rows: Any, name: str) -> Any:
    """Return what the values of all ranks come to."""
    dtype = rows.dtype
    widens = dtype == np.float16 and name in ("SUM", "AVG", "PRODUCT")
    wide = np.dtype(np.float32) if widens else dtype.newbyteorder("=")
    total = MERGES[name].reduce(rows.astype(wide), axis=0, dtype=wide)
    return (total / wide.type(len(rows)) if name == "AVG" else total).astype(dtype)


def all_reduce(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    dtype, name = draw.kind()
    rows = draw.values(draw.count(dtype.itemsize), dtype)
    array = draw.shaped(rows[draw.rank].copy())
    issue(dist.all_reduce, array, getattr(dist.ReduceOp, name))
    return [(array, merged(rows, name))]


def reduce(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    (dtype, name), root = draw.kind(), draw.one_of(range(draw.size))
    rows = draw.values(draw.count(dtype.itemsize), dtype)
    array = draw.shaped(rows[draw.rank].copy())
    issue(dist.reduce, array, draw.ranks[root], getattr(dist.ReduceOp, name))
    return [(array, merged(rows, name) if draw.rank == root else rows[draw.rank])]


def broadcast(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    (dtype, _), root = draw.kind(), draw.one_of(range(draw.size))
    rows = draw.values(draw.count(dtype.itemsize), dtype)
    array = draw.shaped(rows[draw.rank].copy())
    issue(dist.broadcast, array, draw.ranks[root])
    return [(array, rows[root])]


def all_gather(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    dtype, _ = draw.kind()
    count, how = draw.count(dtype.itemsize), draw.one_of(("list", "in place", "uneven", "single"))
    rows = draw.values(count + 1, dtype)
    expected = [row[: count + (how == "uneven" and rank % 2)] for rank, row in enumerate(rows)]
    if how == "single":
        out, mine = draw.shaped(np.zeros(count * draw.size, dtype)), draw.laid_out(draw.shaped(expected[draw.rank]))
        issue(dist.all_gather_single, out, mine)
        mine.fill(1)
        return [(out, np.concatenate(expected))]
    parts = [draw.shaped(np.zeros_like(part)) for part in expected]
    mine = draw.laid_out(draw.shaped(expected[draw.rank]))
    if how == "in place":
        mine = parts[draw.rank]
        mine[...] = expected[draw.rank].reshape(mine.shape)
    issue(dist.all_gather, parts, mine)
    if how != "in place":
        mine.fill(1)
    return list(zip(parts, expected, strict=True))


def reduce_scatter(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    dtype, name = draw.kind()
    count, how = draw.count(dtype.itemsize), draw.one_of(("list", "in place", "uneven", "single"))
    sizes = [count + (how == "uneven" and rank % 2) for rank in range(draw.size)]
    rows = draw.values(sum(sizes), dtype)
    ends = np.cumsum([0, *sizes])
    expected = merged(rows, name)[ends[draw.rank] : ends[draw.rank + 1]]
    mine, op = rows[draw.rank], getattr(dist.ReduceOp, name)
    out = draw.shaped(np.zeros(sizes[draw.rank], dtype))
    if how == "single":
        mine = draw.laid_out(draw.shaped(mine))
        issue(dist.reduce_scatter_single, out, mine, op)
    else:
        parts = [draw.laid_out(draw.shaped(mine[ends[peer] : ends[peer + 1]])) for peer in range(draw.size)]
        if how == "in place":
            out = parts[draw.rank] = parts[draw.rank].copy("C")
        issue(dist.reduce_scatter, out, parts, op)
        for part in parts:
            if part is not out:
                part.fill(1)
    mine.fill(1)
    return [(out, expected)]


def gather(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    (dtype, _), root, here, in_place = draw.kind(), draw.one_of(range(draw.size)), draw.rank, draw.tosses()
    sizes = draw.sizes(draw.count(dtype.itemsize), draw.size)
    rows = draw.values(max(sizes), dtype)
    expected = [row[:size] for row, size in zip(rows, sizes, strict=True)]
    rooms = [draw.shaped(np.zeros_like(part)) for part in expected]
    parts, mine = rooms if here == root else None, draw.laid_out(draw.shaped(expected[here]))
    if parts and in_place:
        mine = parts[root]
        mine[...] = expected[here].reshape(mine.shape)
    issue(dist.gather, mine, parts, draw.ranks[root])
    if parts is None:
        mine.fill(1)
    return list(zip(parts or [], expected if parts else [], strict=True))


def scatter(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    (dtype, _), root, here, in_place = draw.kind(), draw.one_of(range(draw.size)), draw.rank, draw.tosses()
    sizes = draw.sizes(draw.count(dtype.itemsize), draw.size)
    rows = draw.values(max(sizes), dtype)
    expected = [row[:size] for row, size in zip(rows, sizes, strict=True)]
    out, laid = draw.shaped(np.zeros(sizes[here], dtype)), [draw.laid_out(draw.shaped(part)) for part in expected]
    parts = laid if here == root else None
    if parts and in_place:
        out = parts[root] = parts[root].copy("C")
    issue(dist.scatter, out, parts, draw.ranks[root])
    for part in parts or []:
        if part is not out:
            part.fill(1)
    return [(out, expected[here])]


def all_to_all(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    (dtype, _), size, here = draw.kind(), draw.size, draw.rank
    count, single = draw.count(dtype.itemsize * draw.one_of((1, size))), draw.tosses()
    flat = [count] * size**2 if single else draw.sizes(count, size**2)
    sizes = np.reshape(flat, (size, size))
    values = draw.random.integers(0, 4, (size, size, max(flat))).astype(dtype)
    mine = [values[here, peer, : sizes[here, peer]].copy() for peer in range(size)]
    expected = [values[peer, here, : sizes[peer, here]] for peer in range(size)]
    if single:
        # Each part is a row.
        shape = (size, *draw.shaped(mine[0]).shape)
        whole, out = draw.laid_out(np.concatenate(mine, dtype=dtype).reshape(shape)), np.zeros(shape, dtype)
        issue(dist.all_to_all_single, out, whole)
        whole.fill(1)
        return [(out, np.concatenate(expected))]
    parts = [draw.shaped(np.zeros_like(part)) for part in expected]
    mine = [draw.laid_out(draw.shaped(part)) for part in mine]
    issue(dist.all_to_all, parts, mine)
    for part in mine:
        part.fill(1)
    return list(zip(parts, expected, strict=True))


def barrier(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    issue(dist.barrier)
    return []


def message(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    """Send each rank's array to the next one, in one of the ways of sending and receiving."""
    (dtype, _), here, size = draw.kind(), draw.rank, draw.size
    right, left = draw.ranks[(here + 1) % size], draw.ranks[(here - 1) % size]
    rows = draw.values(draw.count(dtype.itemsize), dtype)
    mine, room = draw.laid_out(draw.shaped(rows[here])), draw.shaped(np.zeros_like(rows[here - 1]))
    begins, blocks, tag = here % 2 == 0, draw.tosses() and size > 1, int(draw.random.integers(3))
    for sends in (begins, not begins) if blocks else ():
        issue.blocking(*(dist.send, mine, right) if sends else (dist.recv, room, left), tag)
    if not blocks:
        issue.begun((dist.irecv, room, left), (dist.isend, mine, right), tag)
    mine.fill(1)
    return [(room, rows[here - 1])]


def described(draw: Draw, issue: Issue) -> list[tuple[Any, Any]]:
    """Make a call of a collective that is described in steps."""
    (dtype, name), here, root = draw.kind(), draw.rank, draw.one_of(range(draw.size))
    rows, op = draw.values(draw.count(dtype.itemsize), dtype), getattr(dist.ReduceOp, name)
    array, how = (
        draw.shaped(rows[here].copy()),
        draw.one_of(("scan", "everywhere", "told all", "handed down", "swapped")),
    )
    if how == "everywhere":
        issue(described_calls.everywhere, array, op)
        return [(array, merged(rows, name))]
    if how == "scan":
        issue(described_calls.scan, array, op if name != "AVG" else dist.ReduceOp.SUM)
        return [(array, merged(rows[: here + 1], name if name != "AVG" else "SUM"))]
    if how == "handed down":
        issue(described_calls.handed_down, array, root)
        return [(array, rows[root])]
    if how == "swapped":
        issue(described_calls.swapped, array)
        mirrored = rows[draw.size - 1 - here]
        return [(array, mirrored if draw.size == 2 * here + 1 else mirrored + mirrored)]
    parts = [draw.shaped(np.zeros_like(row)) for row in rows]
    issue(described_calls.told_all, parts, array)
    return list(zip(parts, rows, strict=True))


CALLS = (
    *(all_reduce, reduce, broadcast, all_gather, reduce_scatter, gather, scatter, all_to_all),
    *(barrier, message, described),
)


class Issue:
    """Issues what is drawn, some of it asynchronous, with a time-out of its own, or while a connection is busy."""

    def __init__(self, draw: Draw, group: Any = None) -> None:
        self._draw, self._group = draw, group
        self._long = np.zeros(1_500_000, np.uint8)

    def __call__(self, call: Callable[..., Any], *args: Any) -> None:
        """Make a collective, and wait for it."""
        draw, group = self._draw, self._group
        later, busy = draw.random.random() < 0.2, draw.random.random() < 0.1 and draw.size > 1
        first, last = draw.ranks[0], draw.ranks[-1]
        before = dist.isend(self._long, last, group, 5) if busy and draw.rank == 0 else None
        work = call(*args, group=group, async_op=later, timeout=self._timeout())
        if work is not None:
            work.wait()
        if busy and draw.rank == draw.size - 1:
            dist.recv(np.empty_like(self._long), first, group, 5)
        if before is not None:
            before.wait()

    def _timeout(self) -> Any:
        return self._draw.one_of((None, None, 60, 60.0))

    def blocking(self, call: Callable[..., Any], array: Any, peer: int, tag: int) -> None:
        """Send or receive."""
        call(array, peer, self._group, tag, timeout=self._timeout())

    def begun(self, *calls: Any) -> None:
        """Begin some messages of a tag, and wait for them."""
        *messages, tag = calls
        for work in [call(array, peer, self._group, tag) for call, array, peer in messages]:
            work.wait()


def make(draw: Draw, rounds: int, group: Any = None) -> int:
    """Make random calls in a group; return how many results are wrong.

    What a call was given is overwritten as soon as it has returned.
    """
    return len(wrong_calls(draw, rounds, group))


def wrong_calls(draw: Draw, rounds: int, group: Any = None) -> list[str]:
    """Make them, of each kind as many, and return those that brought a wrong result."""
    wrong, issue, left = [], Issue(draw, group), list[Any]()
    for number in range(rounds):
        left = left or [CALLS[place] for place in draw.random.permutation(len(CALLS))]
        call = left.pop()
        state = draw.random.bit_generator.state
        for _ in range(2):  # the second time it is known
            draw.random.bit_generator.state = state
            for found, expected in call(draw, issue):
                if not np.array_equal(found.reshape(-1), expected):
                    wrong.append(f"{call.__name__} {number}: {found.dtype} {found.shape}")
    return wrong
