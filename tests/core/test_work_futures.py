"""Futures of works, and waiting for them on the thread that is to carry the works out, in a callback of another."""

import concurrent.futures
import threading

import numpy as np
import pytest
from tests.threads import on_ranks, run_local, within

import rankwise as dist
from rankwise.basics.deadline import Deadline
from rankwise.basics.work import COMPLETED, BoundWork, FutureWork
from rankwise.basics.work_future import WorkFuture
from rankwise.calls.calling import CombinedWork
from rankwise.calls.coalesced import all_reduce_coalesced
from rankwise.collective.issue_order import IssueOrder
from rankwise.errors import DistBackendError, DistTimeoutError

PATIENCE_S = 10.0

WAITS = {
    "wait": lambda work: work.wait(),
    "result of the work": lambda work: work.result(),
    "result of the future": lambda work: work.get_future().result(),
    "result within a time": lambda work: work.get_future().result(PATIENCE_S),
    "error of the future": lambda work: work.get_future().exception(),
    "chain": lambda work: work.get_future().then(lambda future: future.result()).result(),
    "chain of a chain": lambda work: work.get_future().then(bool).then(lambda future: future.result()).result(),
}


def in_a_callback(then):
    """Run `then` in a callback of a collective, on the thread that serves; return what came of it."""
    outcome = concurrent.futures.Future()

    def called(work):
        try:
            outcome.set_result(then(work))
        except BaseException as error:
            outcome.set_exception(error)

    dist.all_reduce(np.ones(2), async_op=True).add_done_callback(called)
    return outcome.result(PATIENCE_S)


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("depth", [1, 3])
def test_a_callback_may_wait_in_every_way(wait, depth):
    def program():
        array = np.ones(2)

        def deeper(left):
            def called(_):
                wait(dist.all_reduce(array, async_op=True))
                return in_turn(left - 1) if left else None

            return called

        def in_turn(left):
            ended = threading.Event()
            work = dist.all_reduce(array, async_op=True)
            work.add_done_callback(lambda _: ended.set())
            wait(work)
            return ended.is_set() and deeper(left)(work)

        in_a_callback(deeper(depth))
        return array[0]

    assert run_local(2, program, timeout=PATIENCE_S) == [2.0 ** (1 + 2 * depth)] * 2


@on_ranks(2, timeout=PATIENCE_S)
def test_a_callback_may_wait_for_several_operations_issued_together():
    arrays = [np.ones(2), np.ones(3)]
    in_a_callback(lambda _: all_reduce_coalesced(arrays, async_op=True).get_future().result())
    with dist.coalescing(async_ops=True) as block:
        for array in arrays:
            dist.all_reduce(array)
    in_a_callback(lambda _: block.wait())
    assert [array.tolist() for array in arrays] == [[4.0] * 2, [4.0] * 3]


def test_a_wait_in_a_callback_keeps_the_operations_time_out():
    def program():
        if dist.get_rank() == 1:
            in_a_callback(lambda _: None)
            with pytest.raises(dist.DistError):
                dist.recv(np.ones(1), 0)  # until the other has given the group up
            return
        with within(3.0, at_least_s=0.3), pytest.raises(DistTimeoutError):
            in_a_callback(lambda _: dist.all_reduce(np.ones(2), async_op=True, timeout=0.3).get_future().result())

    run_local(2, program, timeout=PATIENCE_S)


@on_ranks(1, timeout=PATIENCE_S)
def test_a_receive_that_never_comes_ends_its_future_at_the_groups_time_out():
    dist.group.WORLD.set_timeout(0.3)
    future = dist.irecv(np.ones(1), 0).get_future()
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.05)
    assert not future.done()
    with pytest.raises(DistTimeoutError):
        future.result()
    assert isinstance(future.exception(0), DistTimeoutError)


@pytest.fixture
def order():
    made = IssueOrder("test")
    yield made
    made.close()


def issue(order, operation=lambda: None, timeout_s=PATIENCE_S):
    return order.later("an operation", operation, Deadline(timeout_s), lambda error: error)


def test_a_callback_may_wait_for_a_future_that_is_told_after_it(order):
    gate, seen = threading.Event(), []
    work = issue(order, lambda: gate.wait(PATIENCE_S))
    work.add_done_callback(lambda _: seen.append(future.result()))  # before the future's own callback
    future = work.get_future()
    chained = future.then(lambda ended: 7)
    future.add_done_callback(lambda _: seen.append(chained.result()))
    gate.set()
    order.drain(PATIENCE_S)
    assert issue(order).wait(PATIENCE_S)
    assert sorted(seen, key=str) == [7, None]


def test_a_chain_calls_once_and_hands_on_what_went_wrong():
    work, calls = FutureWork(), []
    future = work.get_future()
    chained = future.then(lambda ended: calls.append(ended) or ended.result())
    work.fail(DistBackendError("broken"))
    for _ in range(2):
        with pytest.raises(DistBackendError, match="broken"):
            chained.result(PATIENCE_S)
    assert calls == [future]


def test_a_future_is_one_of_the_standard_library_and_cannot_be_cancelled():
    work = FutureWork()
    future = work.get_future()
    assert isinstance(future, concurrent.futures.Future)
    assert isinstance(future, WorkFuture)
    assert not future.cancel()
    assert future.running()
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.01)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.exception(timeout=0.01)
    work.succeed(3)
    assert concurrent.futures.wait([future], 1).done == {future}
    assert COMPLETED.get_future().done()


def test_whoever_waits_for_several_waits_for_each():
    parts = [FutureWork() for _ in range(3)]
    done = []
    whole = CombinedWork([BoundWork(part, None, (0,)) for part in parts], "all", lambda: done.append(1))
    with pytest.raises(DistTimeoutError):
        whole.wait(0.01)
    for part in parts[::-1]:
        assert not whole.is_completed()
        part.succeed()
    assert whole.wait(0)
    assert whole.result() == "all"
    assert done == [1]
    assert CombinedWork([], "none").result() == "none"


def test_the_first_part_that_fails_fails_the_whole():
    parts = [FutureWork() for _ in range(2)]
    whole = CombinedWork(parts, after=lambda: pytest.fail("not all have ended well"))
    parts[1].fail(DistBackendError("broken"))
    assert whole.is_completed()
    with pytest.raises(DistBackendError, match="broken"):
        whole.get_future().result(PATIENCE_S)


def test_what_is_to_be_done_at_the_end_may_fail():
    def fail():
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        CombinedWork([COMPLETED], after=fail).wait(PATIENCE_S)


def test_a_late_operation_says_itself_whom_it_has_waited_for(order):
    gate = threading.Event()

    def operation():
        gate.wait(0.3)  # well beyond its time-out, as on a busy machine
        raise DistTimeoutError("timed out, waiting for rank 1")

    with pytest.raises(DistTimeoutError, match="waiting for rank 1"):
        issue(order, operation, 0.01).wait()
    behind = [issue(order, lambda: gate.wait(PATIENCE_S)), issue(order, timeout_s=0.01)]
    try:
        with pytest.raises(DistTimeoutError, match="operations before it"):
            behind[1].wait()
    finally:
        gate.set()
    assert behind[0].wait(PATIENCE_S)
