"""`async_op=True`: issue order, and what a `Work` promises."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.backends.capability import COLLECTIVES
from rankwise.basics.work import Work
from rankwise.errors import UnsupportedOperationError
from rankwise.testing.suite.arrays import same
from rankwise.testing.suite.exercises import Case, prepare
from rankwise.testing.suite.expect import begun, error_of, numbers, still_usable, until
from rankwise.testing.suite.plugin import Kit, needs

_SOME = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier")


@needs("async")
@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in COLLECTIVES])
def test_every_collective_may_be_asynchronous(kit: Kit, op: str) -> None:
    for size in (1, 3):
        kit.run(size, asynchronous, op)


def asynchronous(op: str) -> None:
    for count in (0, 6, 2000):
        exercise = prepare(Case(op, reduce="SUM" if "reduce" in op else None, count=count))
        begun(exercise.call(async_op=True)).wait()
        exercise.check()


@needs("async", *_SOME)
def test_operations_run_in_the_order_they_were_issued(kit: Kit) -> None:
    kit.run(3, in_order)


def in_order() -> None:
    cases = [Case(op, reduce="SUM" if "reduce" in op else None, count=50 * i, salt=i) for i, op in enumerate(_SOME * 3)]
    exercises = [prepare(case) for case in cases]
    works = [begun(exercise.call(async_op=True)) for exercise in exercises]
    still_usable()  # a synchronous call takes its place behind them
    for work in reversed(works):
        work.wait()
    for exercise in exercises:
        exercise.check()


@needs("async")
@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in COLLECTIVES])
def test_some_ranks_may_wait_at_once_and_others_later(kit: Kit, op: str) -> None:
    for size in (2, 3):
        kit.run(size, mixed, op)


def mixed(op: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in (6, 300, 60_000):
        calls = []
        for i in range(2 * size):
            exercise = prepare(Case(op, reduce="SUM" if "reduce" in op else None, count=count, salt=i))
            calls.append((exercise, exercise.call(async_op=(i + rank) % size != 0)))
        for exercise, work in calls:
            if work is not None:
                work.wait()
            exercise.check()


@needs("async", "all_reduce")
def test_an_operation_ends_while_its_caller_does_other_things(kit: Kit) -> None:
    kit.run(2, progress)


def progress() -> None:
    array = numbers(1, 2)
    work = begun(dist.all_reduce(array, async_op=True))
    until(work.is_completed, "is_completed() of an all_reduce that all ranks have issued")
    same(array, np.array([2, 4], np.float32))


@needs("async", "all_reduce")
def test_a_work_that_has_ended_well(kit: Kit) -> None:
    kit.run(2, ended_well)


def ended_well() -> None:
    array = numbers(3)
    work = begun(dist.all_reduce(array, async_op=True))
    assert isinstance(work, Work)
    assert work.wait() is True
    assert work.wait(1.0) is True, "a second wait does not return true"
    work.synchronize()
    until(work.is_completed, "is_completed() after synchronize()")
    assert work.is_success()
    assert work.exception() is None
    assert work.result() is array
    assert work.get_future().result(timeout=5) is array
    called = threading.Event()
    work.add_done_callback(lambda done: called.set())
    assert called.wait(5), "the callback of a work that has ended was not called"
    same(array, np.array([6], np.float32))


@needs("async", "all_reduce")
def test_callbacks_and_await_of_a_pending_work(kit: Kit) -> None:
    kit.run(2, awaited)


def awaited() -> None:
    array, other = numbers(1), numbers(2)
    seen: list[Any] = []
    called = threading.Event()

    def note(work: Work) -> None:
        seen.append(work.exception())
        called.set()

    begun(dist.all_reduce(array, async_op=True)).add_done_callback(note)

    async def both() -> Any:
        return await asyncio.wait_for(_of(begun(dist.all_reduce(other, async_op=True))), 10)

    assert asyncio.run(both()) is other
    assert called.wait(10), "the callback was not called"
    assert seen == [None]
    same(array, np.array([2], np.float32))
    same(other, np.array([4], np.float32))


async def _of(work: Work) -> Any:
    return await work


@needs("async", "all_reduce", "broadcast")
def test_operations_of_a_coalescing_block_end_with_it(kit: Kit) -> None:
    kit.run(2, coalesced)


def coalesced() -> None:
    arrays = [numbers(i, 1) for i in range(5)]
    with dist.coalescing():
        for array in arrays:
            dist.all_reduce(array)
    for i, array in enumerate(arrays):
        same(array, np.array([2 * i, 2], np.float32))
    with dist.coalescing(async_ops=True) as block:
        for array in arrays:
            dist.broadcast(array, src=1)
    block.wait()
    begun(dist.all_reduce_coalesced(arrays, async_op=True)).wait()
    for i, array in enumerate(arrays):
        same(array, np.array([4 * i, 4], np.float32))


@needs("all_reduce", "all_gather")
def test_coalesced_calls(kit: Kit) -> None:
    if kit.lacks("async"):
        pytest.skip(kit.lacks("async"))
    kit.run(2, coalesced_calls)


def coalesced_calls() -> None:
    rank = dist.get_rank()
    arrays = [numbers(rank), numbers(10 * rank, 1)]
    outputs = [[numbers(-1) for _ in range(2)], [numbers(-1, -1) for _ in range(2)]]
    dist.all_gather_coalesced(outputs, arrays)
    for source in range(2):
        same(outputs[0][source], np.array([source], np.float32))
        same(outputs[1][source], np.array([10 * source, 1], np.float32))
    dist.all_reduce_coalesced(arrays)
    same(arrays[1], np.array([10, 2], np.float32))


@needs("all_reduce")
def test_asynchronous_calls_are_refused_where_they_are_not_declared(kit: Kit) -> None:
    if not kit.lacks("async"):
        pytest.skip("asynchronous calls are declared, and proved by the other tests")
    kit.run(2, refused)


def refused() -> None:
    error = error_of(UnsupportedOperationError, dist.all_reduce, numbers(1), async_op=True)
    assert "async" in str(error), error
