"""What ranks run with the calls of rankwise-arrays, compared with what NumPy makes of all ranks' arrays at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from itertools import accumulate, product
from typing import Any

import numpy as np

import rankwise as dist

DTYPES = ("int32", "int64", "float32", "float64", "complex128", "uint8")
OPS = {"SUM": np.add, "MAX": np.maximum, "MIN": np.minimum, "PRODUCT": np.multiply}


class Drawn:
    """One call as all ranks know it: whatever is drawn is the same everywhere.

    Args:
        seed: Of what is drawn.
        size: How many ranks there are.
    """

    def __init__(self, seed: int, size: int) -> None:
        self.chance, self.size = np.random.default_rng(seed), size
        self.dtype = np.dtype(str(self.chance.choice(DTYPES)))
        self.op = str(
            self.chance.choice([name for name in OPS if self.dtype.kind != "c" or name in ("SUM", "PRODUCT")])
        )
        self.root = int(self.chance.integers(size))

    def shape(self, most: int = 4, least: int = 0) -> tuple[int, ...]:
        """Draw a shape."""
        return tuple(int(n) for n in self.chance.integers(0, 9, self.chance.integers(least, most + 1)))

    def axis(self, ndim: int) -> int:
        """Draw an axis, counted from either end."""
        return int(self.chance.integers(-ndim, ndim))

    def array(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Draw an array of small whole numbers, whose sums and products are exact: in order, turned or with gaps."""
        values = self.chance.integers(0, 3, shape).astype(self.dtype)
        way = self.chance.integers(4)
        if way == 1 and values.ndim > 1:
            values = np.asfortranarray(values)
        elif way == 2:
            values = np.repeat(values, 2, -1)[..., ::2] if values.ndim else values
        elif way == 3:
            values.flags.writeable = False
        return values

    def arrays(self, shape: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
        """Draw what each rank gives."""
        return [self.array(shape) for _ in range(self.size)]

    def lengths(self, shape: tuple[int, ...], axis: int) -> list[np.ndarray[Any, Any]]:
        """Draw what each rank gives where lengths differ along an axis."""
        axis %= len(shape)
        each = [int(n) for n in self.chance.integers(0, 5, self.size)]
        return [self.array((*shape[:axis], n, *shape[axis + 1 :])) for n in each]


def all_reduce(drawn: Drawn, me: int) -> None:
    arrays = drawn.arrays(drawn.shape())
    got = dist.functional.all_reduce(arrays[me], dist.ReduceOp(drawn.op))
    same(got, reduce(OPS[drawn.op], arrays))


def broadcast(drawn: Drawn, me: int) -> None:
    arrays = drawn.arrays(drawn.shape())
    same(dist.functional.broadcast(arrays[me], drawn.root), arrays[drawn.root])


def all_gather(drawn: Drawn, me: int) -> None:
    arrays = drawn.arrays(drawn.shape())
    same(dist.functional.all_gather(arrays[me]), np.stack(arrays))


def all_gather_along(drawn: Drawn, me: int) -> None:
    shape = drawn.shape(least=1)
    axis = drawn.axis(len(shape))
    arrays = drawn.lengths(shape, axis)
    same(dist.functional.all_gather(arrays[me], axis), np.concatenate(arrays, axis))


def gather(drawn: Drawn, me: int) -> None:
    arrays = drawn.arrays(drawn.shape())
    got = dist.functional.gather(arrays[me], drawn.root)
    same(got, np.stack(arrays) if me == drawn.root else None)


def gather_along(drawn: Drawn, me: int) -> None:
    shape = drawn.shape(least=1)
    axis = drawn.axis(len(shape))
    arrays = drawn.lengths(shape, axis)
    got = dist.functional.gather(arrays[me], drawn.root, axis)
    same(got, np.concatenate(arrays, axis) if me == drawn.root else None)


def scatter(drawn: Drawn, me: int) -> None:
    shape = drawn.shape(least=1)
    axis, whole = drawn.axis(len(shape)), drawn.array(shape)
    got = dist.functional.scatter(whole if me == drawn.root else None, drawn.root, axis)
    same(got, np.array_split(whole, drawn.size, axis)[me])


def reduce_scatter(drawn: Drawn, me: int) -> None:
    shape = drawn.shape(least=1)
    axis, arrays = drawn.axis(len(shape)), drawn.arrays(shape)
    got = dist.functional.reduce_scatter(arrays[me], dist.ReduceOp(drawn.op), axis)
    same(got, np.array_split(reduce(OPS[drawn.op], arrays), drawn.size, axis)[me])


def all_to_all(drawn: Drawn, me: int) -> None:
    """Divide a whole anew: along one axis before, along another after."""
    shape = drawn.shape(least=1)
    before, after, whole = drawn.axis(len(shape)), drawn.axis(len(shape)), drawn.array(shape)
    mine = np.array_split(whole, drawn.size, before)[me]
    if before % len(shape) == after % len(shape):
        return  # which is another division only where it comes out even
    same(dist.functional.all_to_all(mine, after, before), np.array_split(whole, drawn.size, after)[me])


def all_to_all_list(drawn: Drawn, me: int) -> None:
    arrays = [[drawn.array(drawn.shape()) for _ in range(drawn.size)] for _ in range(drawn.size)]
    for came, meant in zip(dist.functional.all_to_all(arrays[me]), [row[me] for row in arrays], strict=True):
        same(came, meant)


def all_to_all_joined(drawn: Drawn, me: int) -> None:
    shape = drawn.shape(least=1)
    axis = drawn.axis(len(shape))
    arrays = [drawn.lengths(shape, axis) for _ in range(drawn.size)]
    meant = np.concatenate([row[me] for row in arrays], axis)
    same(dist.functional.all_to_all(arrays[me], concat_axis=axis), meant)


def permute(drawn: Drawn, me: int) -> None:
    arrays, order = drawn.arrays(drawn.shape()), [int(rank) for rank in drawn.chance.permutation(drawn.size)]
    pairs = [pair for pair in enumerate(order) if drawn.chance.random() < 0.7]
    by = {to: source for source, to in pairs}
    same(
        dist.functional.permute(arrays[me], pairs),
        arrays[by[me]] if me in by else np.zeros_like(arrays[me]),
    )


def scan(drawn: Drawn, me: int) -> None:
    arrays = drawn.arrays(drawn.shape())
    same(dist.functional.scan(arrays[me], dist.ReduceOp(drawn.op)), [*accumulate(arrays, OPS[drawn.op])][me])


def exscan(drawn: Drawn, me: int) -> None:
    arrays = drawn.arrays(drawn.shape())
    meant = [arrays[0], *accumulate(arrays, OPS[drawn.op])]
    same(dist.functional.exscan(arrays[me], dist.ReduceOp(drawn.op)), meant[me])


def objects(drawn: Drawn, me: int) -> None:
    table = [[f"{drawn.dtype} {by} {to}" for to in range(drawn.size)] for by in range(drawn.size)]
    assert dist.functional.all_to_all_objects(table[me]) == [row[me] for row in table]
    assert dist.functional.broadcast_object(table[me], drawn.root) == table[drawn.root]
    assert dist.functional.reduce_objects([me], lambda one, other: one + other) == [*range(drawn.size)]


def ring(drawn: Drawn, me: int) -> None:
    arrays, distance = drawn.arrays(drawn.shape()), int(drawn.chance.integers(-3, 4))
    box = np.empty(arrays[me].shape, drawn.dtype)
    to, by = (me + distance) % drawn.size, (me - distance) % drawn.size
    assert dist.sendrecv(arrays[me], to, box, by, tag=7) == by
    same(box, arrays[by])


def halos(drawn: Drawn, me: int) -> None:
    """Exchange halos of a random grid, and compare with the neighbourhood in the whole array."""
    shape = [0] * int(drawn.chance.integers(1, 4))
    periodic = [bool(one) for one in drawn.chance.integers(0, 2, len(shape))]
    grid = dist.grid(shape, periodic)
    widths = [int(n) for n in drawn.chance.integers(0, 3, len(shape))]
    inner = [int(n) + max(1, width) for n, width in zip(drawn.chance.integers(0, 4, len(shape)), widths, strict=True)]
    more = tuple(int(n) for n in drawn.chance.integers(1, 3, drawn.chance.integers(0, 2)))
    whole = drawn.chance.integers(0, 200, (*np.multiply(grid.shape, inner), *more)).astype("int16")
    begin = np.multiply(grid.coords, inner)
    mine = np.full((*np.add(inner, np.multiply(2, widths)), *more), -1, "int16")
    wanted = mine.copy()
    ranges = [range(-width, length + width) for width, length in zip(widths, inner, strict=True)]
    for place in product(*ranges):
        at = [int(b) + p for b, p in zip(begin, place, strict=True)]
        there = tuple(p + width for p, width in zip(place, widths, strict=True))
        if all(around or 0 <= p < n for p, n, around in zip(at, whole.shape, periodic, strict=False)):
            wanted[there] = whole[tuple(p % n for p, n in zip(at, whole.shape, strict=False))]
        if all(0 <= p < length for p, length in zip(place, inner, strict=True)):
            mine[there] = wanted[there]
    if drawn.chance.random() < 0.5:
        work = grid.exchange_halos(mine, widths, async_op=True)
        work.wait(30)
    else:
        grid.exchange_halos(mine, widths)
    same(mine, wanted)


def neighbours(drawn: Drawn, me: int) -> None:
    grid = dist.grid([0, 0], [bool(one) for one in drawn.chance.integers(0, 2, 2)])
    come = grid.all_gather(np.array([me]))
    assert [None if each is None else int(each[0]) for each in come] == grid.neighbours()
    come = grid.all_to_all([np.array([me, place]) for place in range(4)])
    for place, (peer, each) in enumerate(zip(grid.neighbours(), come, strict=True)):
        same(each, None if peer is None else np.array([peer, place ^ 1]))


def custom(drawn: Drawn, me: int) -> None:
    """Reduce and scan by functions: matrix products, which do not commute, pairs, and ufuncs of NumPy."""
    matrices = drawn.chance.integers(0, 3, (drawn.size, 2, 2))
    products = [*accumulate(matrices, np.matmul)]
    same(dist.functional.all_reduce(matrices[me], np.matmul), products[-1])
    same(dist.functional.scan(matrices[me], np.matmul), products[me])
    same(dist.functional.exscan(matrices[me], np.matmul), [matrices[0], *products][me])
    pairs = np.zeros((drawn.size, 3), [("price", "f8"), ("name", "S4")])
    pairs["price"], pairs["name"] = drawn.chance.integers(0, 9, (drawn.size, 3)), b"x%d" % drawn.root
    same(dist.functional.all_reduce(pairs[me], cheaper), reduce(cheaper, pairs))
    same(dist.functional.scan(pairs[me], cheaper), [*accumulate(pairs, cheaper)][me])
    arrays = drawn.arrays(drawn.shape())
    for logical in (np.logical_and, np.logical_or, np.logical_xor):
        same(dist.functional.all_reduce(arrays[me], logical), reduce(logical, arrays).astype(drawn.dtype))


def cheaper(one: Any, other: Any) -> Any:
    return np.where(other["price"] < one["price"], other, one)


def located(drawn: Drawn, me: int) -> None:
    arrays = [array.real for array in drawn.arrays(drawn.shape())]
    if drawn.dtype.kind == "f" and arrays[-1].size:
        arrays[-1] = np.where(drawn.chance.random(arrays[-1].shape) < 0.2, np.nan, arrays[-1]).astype(drawn.dtype)
    stack = np.stack(arrays)
    for call, best, where in (("minloc", np.min, np.argmin), ("maxloc", np.max, np.argmax)):
        got, at = getattr(dist.functional, call)(arrays[me])
        same(got, np.asarray(best(stack, 0)))
        same(at, np.asarray(where(stack, 0)))
        assert getattr(dist.functional, call)(0, 7 - me)[1] == 7 - drawn.size + 1


def transpose(drawn: Drawn, me: int) -> None:
    rows, columns = (int(n) for n in drawn.chance.integers(0, 100, 2))
    whole = drawn.array((rows, columns, *drawn.shape(most=1)))
    got = dist.functional.transpose(np.array_split(whole, drawn.size)[me])
    same(got, np.array_split(whole.swapaxes(0, 1), drawn.size)[me])
    assert got.flags.c_contiguous


def scatter_unevenly(drawn: Drawn, me: int) -> None:
    """Scatter in lengths that are given, and gather what has come."""
    shape = drawn.shape(least=1)
    axis, whole = drawn.axis(len(shape)), drawn.array(shape)
    ends = sorted(int(n) for n in drawn.chance.integers(0, shape[axis] + 1, drawn.size - 1))
    lengths = [end - begin for begin, end in zip([0, *ends], [*ends, shape[axis]], strict=True)]
    mine = dist.functional.scatter(whole if me == drawn.root else None, drawn.root, axis, lengths=lengths)
    same(mine, np.split(whole, ends, axis)[me])
    same(dist.functional.gather(mine, drawn.root, axis), whole if me == drawn.root else None)


def splits(drawn: Drawn, me: int) -> None:
    colors = [None if n == 3 else ("red", 7, -1)[int(n)] for n in drawn.chance.integers(0, 4, drawn.size)]
    keys = [int(n) for n in drawn.chance.integers(0, 3, drawn.size)]
    group = dist.split(colors[me], keys[me])
    if colors[me] is None:
        assert group is None
        return
    meant = sorted((rank for rank in range(drawn.size) if colors[rank] == colors[me]), key=keys.__getitem__)
    assert dist.get_process_group_ranks(group) == meant
    assert dist.functional.all_gather(me, group=group).tolist() == meant
    dist.destroy_process_group(group)


def probed(drawn: Drawn, rank: int) -> None:
    """Receive what all send to one rank, of lengths that it learns by probing, into more room than that."""
    arrays = [drawn.array((int(drawn.chance.integers(0, 2000)),)) for _ in range(drawn.size)]
    sending: Any = dist.isend(arrays[rank], drawn.root, tag=7)
    due = set(range(drawn.size)) if rank == drawn.root else set()
    while due:
        src = min(due) if len(due) % 2 else None
        message = dist.probe(src, tag=7)
        assert message is not None
        meant = arrays[message.source]
        assert (message.count(drawn.dtype), message.dtype) in ((meant.size, drawn.dtype), (meant.size, None))
        room = np.full(meant.size + 3, 9, drawn.dtype)
        work: Any = dist.irecv(room, message.source, tag=7)
        work.wait()
        assert (work.source_rank(), work.count(drawn.dtype)) == (message.source, meant.size)
        same(room[: meant.size], meant)
        assert (room[meant.size :] == 9).all()
        due.remove(message.source)
    assert dist.iprobe(tag=7) is None
    sending.wait()


CALLS: dict[str, Callable[[Drawn, int], None]] = {
    call.__name__: call
    for call in (
        *(all_reduce, broadcast, all_gather, all_gather_along, gather, gather_along, scatter, reduce_scatter),
        *(all_to_all, all_to_all_list, all_to_all_joined, permute, scan, exscan, objects, ring, halos, neighbours),
        *(custom, located, transpose, scatter_unevenly, splits, probed),
    )
}


def same(got: Any, meant: Any) -> None:
    if meant is None:
        assert got is None
        return
    assert type(got) is np.ndarray
    assert got.dtype == meant.dtype
    np.testing.assert_array_equal(got, meant)


def drawn_call(seed: int, size: int) -> Callable[[int], None]:
    """Return a call that a seed stands for."""
    names = sorted(CALLS)
    return partial(CALLS[names[seed % len(names)]], Drawn(seed, size))


def random_calls(first: int, count: int) -> int:
    """Make calls; return how many."""
    for seed in range(first, first + count):
        try:
            drawn_call(seed, dist.get_world_size())(dist.get_rank())
        except Exception as error:
            raise AssertionError(f"call {seed} on rank {dist.get_rank()}: {error}") from error
    return count


def one_raises() -> str:
    """Return what each rank hears where rank 1 leaves its block by an error."""
    try:
        with dist.world("gloo", timeout=60) as world:
            if world.rank() == 1:
                raise LookupError("had enough")
            dist.barrier()
    except (LookupError, dist.DistError) as error:
        return type(error).__name__
    return "nothing"
