"""What random calls do not show: kinds of values, waits, edges, mistakes, and ranks outside of a group."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise_arrays import scans
from rankwise_local import local_world
from rankwise_testing import RankPool

PATIENCE_S = 30.0

HERE = Path(__file__).parent
sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
import array_programs  # noqa: E402


@pytest.fixture
def alone() -> Any:
    with local_world(1, timeout=PATIENCE_S) as world:
        yield world


# ---------------------------------------------------------------------- kinds of values


@pytest.mark.parametrize(
    ("given", "kind", "meant"),
    [
        (3, int, 9),
        (True, bool, True),
        (1.5, float, 4.5),
        (2j, complex, 6j),
        (np.float32(2), np.float32, 6),
        (np.int16(2), np.int16, 6),
        (np.ma.masked_array([1, 2]).data, np.ndarray, [3, 6]),
        (np.array(7), np.ndarray, 21),
    ],
)
def test_what_comes_back_is_what_was_given(given: Any, kind: type, meant: Any) -> None:
    op = dist.ReduceOp.MAX if kind is bool else dist.ReduceOp.SUM
    with local_world(3, timeout=PATIENCE_S) as world:
        for got in world.run(lambda: dist.functional.all_reduce(given, op)):
            assert type(got) is kind
            np.testing.assert_array_equal(got, meant)


class Foreign:
    """An array of another library: to be had by DLPack alone, and made by its namespace."""

    def __init__(self, held: np.ndarray[Any, Any]) -> None:
        self.held = held

    def __dlpack__(self, **terms: Any) -> Any:
        return self.held.__dlpack__(**terms)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.held.__dlpack_device__()

    def __array_namespace__(self) -> type[Foreign]:
        return Foreign

    @staticmethod
    def from_dlpack(array: Any) -> Foreign:
        return Foreign(np.from_dlpack(array))


def test_an_array_of_another_library_comes_back_as_its_own() -> None:
    given = Foreign(np.arange(3.0))
    with local_world(2, timeout=PATIENCE_S) as world:
        for got in world.run(lambda: dist.functional.all_gather(given, axis=0)):
            assert type(got) is Foreign
            assert got.held.tolist() == [0, 1, 2, 0, 1, 2]
    assert given.held.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ([1, 2], TypeError, "all_reduce: list is neither an array nor a number"),
        ("text", TypeError, "all_reduce: str is neither"),
        (1 << 64, ValueError, "beyond the integers of 64 bits"),
    ],
)
def test_what_is_no_array_is_named(alone: Any, given: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        alone.run(lambda: dist.functional.all_reduce(given))


def test_the_program_is_named_where_a_call_fails() -> None:
    def fail() -> None:
        dist.functional.all_reduce(np.ones(1 + dist.get_rank()))

    with local_world(2, timeout=PATIENCE_S) as world, pytest.raises(dist.CollectiveMismatchError, match="all_reduce"):
        world.run(fail)


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: dist.functional.all_gather(np.ones(2), axis=1), "all_gather: axis 1 is none of an array of 1"),
        (lambda: dist.functional.all_to_all([np.ones(2)] * 3), "all_to_all: 3 arrays for a group of 2"),
        (lambda: dist.functional.all_to_all_objects([1]), "1 objects for a group of 2"),
        (lambda: dist.functional.permute(1, [(0, 1), (0, 0)]), "sends or gets twice"),
        (lambda: dist.functional.permute(1, [(0, 2)]), "no rank 2 in a group of 2"),
        (lambda: dist.functional.scan(1.0, dist.ReduceOp.AVG), "scan: AVG is of all ranks"),
        (
            lambda: dist.functional.scatter(np.ones(3), lengths=[1, 1]),
            r"scatter: \[1, 1\] are no lengths of 2 parts of 3",
        ),
        (lambda: dist.functional.scatter(np.ones(3), axis=1), "scatter: axis 1 is none"),
        (lambda: dist.functional.transpose(np.ones(3)), "transpose: an array of 1 dim"),
        (lambda: dist.grid([3]), r"grid: \(3,\) does not fit a group of 2"),
        (lambda: dist.grid([0, 2, 2]), r"does not fit a group of 2"),
        (lambda: dist.grid([2], [True, False]), "2 values of periodic for 1 axes"),
        (lambda: dist.grid([2]).exchange_halos(np.ones(2)), "2 elements along axis 0 are too few for halos of 1"),
        (lambda: dist.grid([2]).all_to_all([1]), "1 arrays for 2 neighbours"),
        (lambda: dist.grid([2]).coords_of(5), "rank 5 is not in it"),
        (lambda: dist.share(-1), "-1 indices"),
        (lambda: dist.share(4, rank=2), "no rank 2 in a group of 2"),
        (lambda: dist.wait_any([]), "nothing to wait for"),
    ],
)
def test_a_mistake_is_named_on_all_ranks(mistake: Any, words: str) -> None:
    def all_say_so() -> None:
        with pytest.raises(ValueError, match=words):
            mistake()

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(all_say_so)


def test_a_function_that_is_no_operation_on_arrays_is_named_where_it_is_called() -> None:
    def scans() -> str:
        try:
            dist.functional.scan(np.ones(3), np.dot)
        except ValueError as error:
            return str(error)
        with pytest.raises(TypeError, match="arrays of dtype object do not travel"):
            dist.functional.scan(np.array([None]), np.add)
        return ""

    with local_world(2, timeout=PATIENCE_S) as world:
        first, second = world.run(scans)
    assert first == ""
    assert second.startswith("scan: the function makes an array of shape () of two of (3,)")


def test_shapes_that_do_not_fit_are_told_to_all_ranks() -> None:
    def all_say_so() -> None:
        with pytest.raises(ValueError, match=r"only axis 0 may differ.*rank 0 \(2, 1\), rank 1 \(2, 2\)"):
            dist.functional.all_gather(np.ones((2, 1 + dist.get_rank())), axis=0)
        assert dist.functional.all_reduce(1) == 2

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(all_say_so)


# ---------------------------------------------------------------------- ranks outside of a group


def test_who_is_not_in_the_group_gets_nothing() -> None:
    def outside() -> None:
        group = dist.new_group([0])
        member = dist.get_rank() == 0
        with_group = {"group": group}
        functional = dist.functional
        got = [
            functional.all_reduce(1, **with_group),
            functional.broadcast(1, **with_group),
            functional.all_gather(1, **with_group),
            functional.gather(1, **with_group),
            functional.scatter(np.ones(1), **with_group),
            functional.reduce_scatter(np.ones(1), **with_group),
            functional.all_to_all(np.ones(1), **with_group),
            functional.permute(1, [], **with_group),
            functional.scan(1, **with_group),
            functional.all_reduce(1, np.add, **with_group),
            functional.minloc(1, **with_group),
            functional.transpose(np.ones((2, 2)), **with_group),
            dist.split(0, **with_group),
            functional.broadcast_object(1, **with_group),
            functional.reduce_objects(1, max, **with_group),
            functional.all_to_all_objects([1], **with_group),
        ]
        assert [each is not None for each in got] == [member] * len(got)
        assert len(dist.share(5, group)) == (5 if member else 0)
        assert dist.sendrecv(np.ones(1), None, np.ones(1), None, group) == -1

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(outside)


# ---------------------------------------------------------------------- waits


def test_any_of_several_works_ends_the_wait() -> None:
    def waits() -> None:
        me, boxes = dist.get_rank(), [np.empty(1, int) for _ in range(4)]
        works = [dist.irecv(box, 1 - me, tag=tag) for tag, box in enumerate(boxes)]
        dist.send(np.array([12]), 1 - me, tag=2)
        assert dist.wait_any([*works, None][:4]) == 2
        with pytest.raises(dist.DistTimeoutError):
            dist.wait_any(works[:2], timeout=0.01)
        with pytest.raises(dist.DistTimeoutError):
            dist.wait_all(works, timeout=0.01)
        dist.barrier()
        for tag in (3, 0, 1):
            dist.send(np.array([10 + tag]), 1 - me, tag=tag)
        assert {int(work.result()[0]) for work in dist.as_completed(works)} == {10, 11, 12, 13}
        assert dist.wait_some([*works, None], timeout=1) == [0, 1, 2, 3, 4]
        dist.wait_all([*works, None])

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(waits)


def test_works_are_given_as_they_end_to_who_awaits_them() -> None:
    async def awaited(works: list[Any]) -> list[int]:
        return [int(work.result()[0]) async for work in dist.as_completed(works, timeout=PATIENCE_S)]

    async def late(works: list[Any]) -> None:
        async for _ in dist.as_completed(works, timeout=0.01):
            raise AssertionError("nothing has been sent")

    def waits() -> None:
        me, boxes = dist.get_rank(), [np.empty(1, int) for _ in range(2)]
        works = [dist.irecv(box, 1 - me, tag=tag) for tag, box in enumerate(boxes)]
        with pytest.raises(dist.DistTimeoutError, match="2 of 2 works have not ended"):
            asyncio.run(late(works))
        dist.barrier()
        for tag in range(2):
            dist.send(np.array([tag]), 1 - me, tag=tag)
        assert sorted(asyncio.run(awaited(works))) == [0, 1]

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(waits)


def test_the_first_failure_is_raised_after_all_were_waited_for() -> None:
    def waits() -> None:
        me, small, large = dist.get_rank(), np.empty(1), np.empty(2)
        works = [dist.irecv(small, 1 - me, tag=0), dist.irecv(large, 1 - me, tag=1)]
        sent = [dist.isend(np.ones(2), 1 - me, tag=tag) for tag in range(2)]
        for several in (works, sent):
            with pytest.raises(dist.DistError, match="16 bytes"):
                dist.wait_all(several)
        assert large.tolist() == [1, 1]
        assert works[1].is_success()

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(waits)


# ---------------------------------------------------------------------- grids, blocks and worlds


def test_a_grid_knows_who_is_where() -> None:
    def places() -> tuple[Any, ...]:
        grid = dist.grid([2, 0], [False, True])
        row = grid.sub(1)
        assert row.shape == (3,)
        assert row.coords == grid.coords[1:]
        assert dist.functional.all_gather(dist.get_rank(), group=row.group).tolist() == [
            3 * grid.coords[0] + place for place in range(3)
        ]
        return grid.shape, grid.coords, grid.shift(0), grid.shift(1), grid.neighbours(), grid.rank_of((0, -1))

    with local_world(6, timeout=PATIENCE_S) as world:
        told = world.run(places)
    assert [each[0] for each in told] == [(2, 3)] * 6
    assert [each[1] for each in told] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert told[0][2:] == ((None, 3), (2, 1), [None, 3, 2, 1], 2)
    assert told[4][2:] == ((1, None), (3, 5), [1, None, 3, 5], 2)


@pytest.mark.parametrize(
    ("size", "wanted", "shape"),
    [
        (12, 2, (4, 3)),
        (12, 3, (3, 2, 2)),
        (7, 2, (7, 1)),
        (12, [0, 2], (6, 2)),
        (1, 3, (1, 1, 1)),
        (8, [2, 0, 0], (2, 2, 2)),
    ],
)
def test_free_axes_are_about_equally_long(
    monkeypatch: pytest.MonkeyPatch, size: int, wanted: Any, shape: tuple[int, ...]
) -> None:
    from rankwise_arrays.grid import grid

    for name, value in (("get_world_size", size), ("get_rank", 0), ("get_process_group_ranks", list(range(size)))):
        monkeypatch.setattr(dist, name, lambda group=None, value=value: value)
    assert grid(wanted).shape == shape


def test_shares_cover_all_indices_once() -> None:
    from rankwise_arrays.blocks import shares

    for n in range(20):
        for size in range(1, 8):
            parts = shares(n, size)
            assert [index for part in parts for index in part] == list(range(n))
            assert {len(part) for part in parts} <= {n // size, n // size + 1}


def test_a_world_ends_with_its_block() -> None:
    with dist.world("gloo", store=dist.HashStore(), rank=0, world_size=1) as world:
        assert (world.rank(), world.size()) == (0, 1)
    assert not dist.is_initialized()
    with pytest.raises(KeyError), dist.world("gloo", store=dist.HashStore(), rank=0, world_size=1):
        raise KeyError
    assert not dist.is_initialized()
    with dist.world("gloo", store=dist.HashStore(), rank=0, world_size=1):
        dist.destroy_process_group()


def test_nobody_waits_for_a_rank_whose_block_has_raised() -> None:
    with RankPool(2) as pool:
        assert pool.run(array_programs.one_raises, timeout=PATIENCE_S) == ["GroupAbortedError", "LookupError"]


@pytest.mark.parametrize("at_once_nbytes", [1, 64, 1000])
def test_long_arrays_are_scanned_piece_by_piece(at_once_nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_AT_ONCE_NBYTES", at_once_nbytes)
    monkeypatch.setattr(scans, "_kept", threading.local())

    def scan() -> None:
        for seed in range(40):
            for program in (array_programs.scan, array_programs.exscan):
                program(array_programs.Drawn(seed, 3), dist.get_rank())

    with local_world(3, timeout=PATIENCE_S) as world:
        world.run(scan)


@pytest.mark.filterwarnings("error")
def test_what_no_narrow_float_holds_is_scanned_to_infinity() -> None:
    with local_world(3, timeout=PATIENCE_S) as world:
        assert world.run(lambda: float(dist.functional.scan(np.float16(3e4)))) == [float(np.float16(3e4)), 6e4, np.inf]


def test_parts_that_cannot_be_joined_are_named_after_all_have_come() -> None:
    def join() -> str:
        parts = [np.ones((2, 2 + dist.get_rank()))] * 2
        with pytest.raises(ValueError, match="dimension") as error:
            dist.functional.all_to_all(parts, concat_axis=0)
        dist.barrier()
        return str(error.value)

    with local_world(2, timeout=PATIENCE_S) as world:
        assert all(world.run(join))
