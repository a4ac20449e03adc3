"""Parts that differ in size, empty ones included."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.errors import UnsupportedOperationError
from rankwise_testing.suite.arrays import on_device, plain, same
from rankwise_testing.suite.expect import error_of, host, numbers
from rankwise_testing.suite.plugin import Kit, needs

_SIZES = pytest.mark.parametrize("size", [1, 2, 3, 4])


def _length(rank: int) -> int:
    return (3, 0, 5, 1)[rank]


def _part(source: int, to: int, length: int) -> Any:
    return (np.arange(length) + 100 * source + 10 * to).astype(plain())


def _blank(length: int) -> Any:
    return on_device(np.full(length, host(-1)[0]))


@_SIZES
@needs("uneven", "all_gather", "gather", "scatter")
def test_each_rank_has_its_own_length(kit: Kit, size: int) -> None:
    kit.run(size, move_parts)


def move_parts() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    wanted = [_part(source, 0, _length(source)) for source in range(size)]
    parts = [_blank(_length(source)) for source in range(size)]
    dist.all_gather(parts, on_device(wanted[rank]))
    _all_same(parts, wanted)
    for root in range(size):
        parts = [_blank(_length(source)) for source in range(size)]
        dist.gather(on_device(wanted[rank]), parts if rank == root else None, dst=root)
        if rank == root:
            _all_same(parts, wanted)
        array = _blank(_length(rank))
        dist.scatter(array, [on_device(part) for part in wanted] if rank == root else None, src=root)
        same(array, wanted[rank])


@_SIZES
@needs("uneven", "reduce_scatter")
def test_reduce_scatter_to_parts_of_any_length(kit: Kit, size: int) -> None:
    names = [name for name in _UFUNCS if kit.measurements.declares("reduce_scatter", name, kit.plain)]
    kit.run(size, reduce_parts, names)


_UFUNCS = {"SUM": np.add, "MAX": np.maximum}


def reduce_parts(names: list[str]) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for op, reduce in [(getattr(dist.ReduceOp, name), _UFUNCS[name]) for name in names]:
        mine = [on_device(_part(rank, to, _length(to))) for to in range(size)]
        array = _blank(_length(rank))
        dist.reduce_scatter(array, mine, op)
        want = reduce.reduce([_part(source, rank, _length(rank)) for source in range(size)])
        same(array, want.astype(plain()))
        _all_same(mine, [_part(rank, to, _length(to)) for to in range(size)])


@_SIZES
@needs("uneven", "all_to_all")
def test_each_pair_has_its_own_length(kit: Kit, size: int) -> None:
    kit.run(size, exchange)


def exchange() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    lengths = [[(3 * source + to) % 4 for to in range(size)] for source in range(size)]
    ins = [_part(rank, to, lengths[rank][to]) for to in range(size)]
    wanted = [_part(source, rank, lengths[source][rank]) for source in range(size)]
    outs = [_blank(len(part)) for part in wanted]
    dist.all_to_all(outs, [on_device(part) for part in ins])
    _all_same(outs, wanted)

    output = _blank(sum(len(part) for part in wanted))
    received = [len(part) for part in wanted]
    dist.all_to_all_single(output, on_device(np.concatenate(ins)), received, lengths[rank])
    for part, (begin, end) in zip(wanted, pairwise(accumulate(received, initial=0)), strict=True):
        same(output[begin:end], part)


#: For each source, how much goes to each rank: nothing from one, nothing to one, nothing but to itself, one pair alone.
_EMPTY = {
    "from one": [[0, 0, 0], [2, 3, 1], [1, 1, 4]],
    "to one": [[0, 2, 1], [0, 3, 1], [0, 1, 2]],
    "to others": [[3, 0, 0], [0, 1, 0], [0, 0, 2]],
    "to itself": [[0, 2, 1], [1, 0, 3], [2, 1, 0]],
    "but one pair": [[0, 0, 0], [0, 0, 0], [0, 5, 0]],
    "at all": [[0, 0, 0]] * 3,
}


@pytest.mark.parametrize("nothing", list(_EMPTY))
@needs("uneven", "all_to_all")
def test_ranks_may_have_nothing_for_each_other(kit: Kit, nothing: str) -> None:
    kit.run(3, exchange_little, _EMPTY[nothing])


def exchange_little(lengths: list[list[int]]) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for scale in (1, 3_000):
        ins = [on_device(_part(rank, to, scale * lengths[rank][to])) for to in range(size)]
        outs = [_blank(scale * lengths[source][rank]) for source in range(size)]
        dist.all_to_all(outs, ins)
        _all_same(outs, [_part(source, rank, scale * lengths[source][rank]) for source in range(size)])


def test_uneven_parts_are_refused_where_they_are_not_declared(kit: Kit) -> None:
    if not kit.lacks("uneven"):
        pytest.skip("uneven parts are declared, and proved by the other tests")
    kit.run(2, gather_uneven)


def gather_uneven() -> None:
    rank = dist.get_rank()
    error = error_of(
        UnsupportedOperationError, dist.all_gather, [numbers(0), numbers(0, 0)], numbers(*[1] * (rank + 1))
    )
    assert "uneven" in str(error), error


def _all_same(arrays: list[Any], wanted: list[Any]) -> None:
    for array, want in zip(arrays, wanted, strict=True):
        same(array, want)
