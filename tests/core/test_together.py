"""Small arrays that are reduced together: as one array, and compared as what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.threads import run_local

import rankwise as dist
from rankwise.calls.coalesced import packed, shapes_mark, unpack
from rankwise.groups.world import current

SHAPES = [(), (3,), (2, 2), (0,), (1, 1, 4)]


def arrays(rank: int, dtype: Any = np.float32, shapes: Sequence[tuple[int, ...]] = SHAPES) -> list[Any]:
    return [np.full(shape, rank + 10 * place, dtype) for place, shape in enumerate(shapes)]


def noted() -> list[str]:
    return [entry.op for entry in current().recorder.entries()]


@pytest.mark.parametrize("async_op", [False, True])
def test_they_are_one_call(async_op: bool) -> None:
    def program() -> None:
        given = arrays(dist.get_rank())
        work = dist.all_reduce_coalesced(given, async_op=async_op)
        if work is not None:
            assert work.result() == given
        for place, array in enumerate(given):
            assert (array == 1 + 20 * place).all()
        assert noted() == ["all_reduce"]

    run_local(2, program)


def test_elements_that_do_not_lie_in_order_come_back_to_their_places() -> None:
    def program() -> None:
        given = [np.ones((3, 4)).T if dist.get_rank() else np.ones((4, 3)), np.ones(5)]
        given[0][1, 2] = 7
        dist.all_reduce_coalesced(given)
        assert [array.sum() for array in given] == [24 + 12, 10]
        assert given[0][1, 2] == 14

    run_local(2, program)


@pytest.mark.parametrize(
    "others",
    [
        [np.ones((3, 2)), np.ones(4)],  # of another shape, but as long
        [np.ones(4), np.ones((2, 3))],
        [np.ones((2, 3)), np.ones(3), np.ones(1)],
        [np.ones(10)],
    ],
)
def test_each_shape_is_compared(others: list[Any]) -> None:
    def program() -> None:
        given = others if dist.get_rank() else [np.ones((2, 3)), np.ones(4)]
        with pytest.raises(dist.CollectiveMismatchError, match="2 arrays"):
            dist.all_reduce_coalesced([array.copy() for array in given])

    run_local(2, program)


@pytest.mark.parametrize("given", [[np.ones(2), np.ones(2, np.int32)], [np.ones(1 << 14), np.ones(1)], [np.ones(2)]])
def test_other_arrays_are_calls_of_their_own(given: list[Any]) -> None:
    def program() -> None:
        mine = [array.copy() for array in given]
        dist.all_reduce_coalesced(mine)
        assert all((array == 2).all() for array in mine)
        assert noted() == ["all_reduce"] * len(mine)

    run_local(2, program)


def test_what_is_packed_comes_out_as_it_was() -> None:
    given = arrays(3)
    flat, wanted = packed(given), [array.copy() for array in given]
    for array in given:
        array[...] = 0
    unpack(flat, given)
    assert all((array == was).all() for array, was in zip(given, wanted, strict=True))


def test_the_mark_tells_shapes_apart() -> None:
    lists = [[(6,)], [(2, 3)], [(3, 2)], [(6,), ()], [(), (6,)], [(2,), (3,)], [(3,), (2,)], [(1, 6)]]
    marks = {shapes_mark([np.ones(shape) for shape in shapes]) for shapes in lists}
    assert len(marks) == len(lists)
    assert all(-(1 << 63) <= mark < 0 for mark in marks)
