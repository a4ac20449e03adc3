"""`async_op=True`: issue order, and what a `Work` promises."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.errors import UnsupportedOperationError
from rankwise.kits import COLLECTIVES, ProcessGroup, Work
from rankwise_testing.suite.arrays import pattern, same
from rankwise_testing.suite.exercises import Case, prepare
from rankwise_testing.suite.expect import begun, error_of, host, numbers, still_usable, until
from rankwise_testing.suite.plugin import Kit, needs

_LONG = ("reduce_scatter", "all_gather", "all_reduce")
_SOME = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier")


@needs("async")
@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in COLLECTIVES])
def test_every_collective_may_be_asynchronous(kit: Kit, op: str) -> None:
    for size in kit.sizes(1, 3):
        kit.run(size, asynchronous, op)


def asynchronous(op: str) -> None:
    for count in (0, 6, 2000):
        exercise = prepare(Case(op, reduce="SUM" if "reduce" in op else None, count=count))
        begun(exercise.call(async_op=True)).wait()
        exercise.check()


@needs("async", "send", "recv")
@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in COLLECTIVES])
def test_an_asynchronous_call_does_not_wait_for_the_others(kit: Kit, op: str) -> None:
    """The other ranks come only when they have heard that the first one's call has returned."""
    kit.on_host_only("operations on one GPU stream run one after the other")
    kit.run_alone(2, issued_before_the_others, op)


def issued_before_the_others(op: str) -> None:
    rank = dist.get_rank()
    for first in range(2):
        for count in (5, 5_000):
            exercise = prepare(Case(op, reduce="SUM" if "reduce" in op else None, count=count))
            if rank != first:
                dist.recv(numbers(0), first)
            work = begun(exercise.call(async_op=True))
            if rank == first:
                dist.send(numbers(0), 1 - rank)
            work.wait()
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


@needs("async", "barrier", *_LONG)
def test_what_was_issued_before_has_ended_too(kit: Kit) -> None:
    kit.run(3, the_last_of_them)


def the_last_of_them() -> None:
    for salt in range(20):
        first = [prepare(Case(op, reduce="SUM" if "reduce" in op else None, count=100_000, salt=salt)) for op in _LONG]
        works = [begun(exercise.call(async_op=True)) for exercise in first]
        if salt % 2:
            dist.barrier()
        else:
            last = prepare(Case("all_reduce", reduce="SUM", count=1, salt=salt))
            begun(last.call(async_op=True)).wait()
        for exercise in first:
            exercise.check()
        for work in works:
            work.wait()


@needs("async", "all_reduce", "barrier")
def test_the_first_calls_of_a_group_may_be_issued_together(kit: Kit) -> None:
    kit.run(3, first_calls)


def first_calls() -> None:
    """One thread may carry the first out while another prepares the second, and both need what the group makes once."""
    for salt in range(12):
        group = dist.new_group()
        assert isinstance(group, ProcessGroup)
        cases = [Case("all_reduce", reduce="SUM", count=count, salt=salt) for count in (300_000, 1)]
        exercises = [prepare(case, group) for case in cases]
        works = [begun(exercise.call(async_op=True)) for exercise in exercises]
        for work, exercise in zip(works, exercises, strict=True):
            work.wait()
            exercise.check()
        dist.barrier(group)
        dist.destroy_process_group(group)


@needs("async")
@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in COLLECTIVES])
def test_some_ranks_may_wait_at_once_and_others_later(kit: Kit, op: str) -> None:
    for size in kit.sizes(2, 3):
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
    same(array, host(2, 4))


@needs("async")
@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in COLLECTIVES if op != "barrier"])
@pytest.mark.parametrize("way", ["is_completed", "callback", "future"])
def test_a_work_reports_its_end_when_the_result_is_there(kit: Kit, op: str, way: str) -> None:
    kit.on_host_only("a GPU's work has ended for the host when it is in the stream")
    kit.run(2, reported, op, way)


def reported(op: str, way: str) -> None:
    for count in (3, 300_000):
        exercise = prepare(Case(op, reduce="SUM" if "reduce" in op else None, count=count))
        _seen(begun(exercise.call(async_op=True)), way)
        exercise.check()


def _seen(work: Work, way: str) -> None:
    """Wait until a work reports its end, without waiting for it."""
    ended = threading.Event()
    if way == "callback":
        work.add_done_callback(lambda done: ended.set())
        assert ended.wait(10), "the callback was not called"
    else:
        until(work.is_completed if way == "is_completed" else work.get_future().done, f"the {way} of a work")


@needs("send", "recv")
@pytest.mark.parametrize("way", ["is_completed", "callback", "future"])
def test_a_message_reports_its_end_when_its_buffer_is_free_or_full(kit: Kit, way: str) -> None:
    kit.on_host_only("a GPU's work has ended for the host when it is in the stream")
    kit.require("uint8", "send", "recv")
    kit.run(2, message_reported, way)


def message_reported(way: str) -> None:
    for i, nbytes in enumerate((5, 100_000, 3_000_000)):
        array = np.array(pattern(nbytes, i))
        if dist.get_rank() == 0:
            _seen(begun(dist.isend(array, 1)), way)
            array[:] = 0  # it is the caller's again
        else:
            array[:] = 0
            _seen(begun(dist.irecv(array, 0)), way)
            same(array, pattern(nbytes, i))


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
    same(array, host(6))


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
    same(array, host(2))
    same(other, host(4))


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
        same(array, host(2 * i, 2))
    with dist.coalescing(async_ops=True) as block:
        for array in arrays:
            dist.broadcast(array, src=1)
    block.wait()
    begun(dist.all_reduce_coalesced(arrays, async_op=True)).wait()
    for i, array in enumerate(arrays):
        same(array, host(4 * i, 4))


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
        same(outputs[0][source], host(source))
        same(outputs[1][source], host(10 * source, 1))
    dist.all_reduce_coalesced(arrays)
    same(arrays[1], host(10, 2))


@needs("all_reduce")
def test_asynchronous_calls_are_refused_where_they_are_not_declared(kit: Kit) -> None:
    if not kit.lacks("async"):
        pytest.skip("asynchronous calls are declared, and proved by the other tests")
    kit.run(2, refused)


def refused() -> None:
    error = error_of(UnsupportedOperationError, dist.all_reduce, numbers(1), async_op=True)
    assert "async" in str(error), error
