"""Deadlines: a call ends at its own, names who is missing, and leaves what can be left usable."""

from __future__ import annotations

import re
import time

import pytest

import rankwise as dist
from rankwise.errors import DistError, DistTimeoutError, UnsupportedOperationError
from rankwise.kits import COLLECTIVES
from rankwise_testing.suite.arrays import same
from rankwise_testing.suite.exercises import Case, prepare
from rankwise_testing.suite.expect import begun, error_of, host, numbers, settled, still_usable
from rankwise_testing.suite.plugin import Kit, needs

_TIMEOUT_S = 0.3
#: Long enough for a rank to have told of itself.
_A_BEAT_S = 1.5
#: The time-out of a group, in which it can also be made.
_GROUP_S = 1.5
#: The promise is 100 ms; a machine that is busy with four ranks and other things gets more.
_SLACK_S = 2.0


@needs("timeout")
@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in COLLECTIVES])
def test_a_collective_without_all_ranks_ends_at_its_timeout(kit: Kit, op: str) -> None:
    texts = kit.run_alone(3, one_is_missing, op)
    assert any(re.search(r"\b2\b", text) for text in texts), f"no rank names the missing rank 2: {texts}"


def one_is_missing(op: str) -> str:
    if dist.get_rank() == 2:
        return ""
    begin = time.monotonic()
    case = Case(op, reduce="SUM" if "reduce" in op else None, root=2)
    # A short message may be on its way although nobody takes it: only those who need rank 2's part must wait for it.
    lonely = op not in ("gather", "reduce")
    try:
        settled(prepare(case).call, timeout=_TIMEOUT_S)
    except DistTimeoutError as error:
        took = time.monotonic() - begin
        assert took < _TIMEOUT_S + _SLACK_S, f"it took {took:.2f} s"
        return str(error)
    except DistError as error:
        # The other rank was first, and has given the group up for both.
        return str(error)
    assert not lonely, "it returned although a rank is missing"
    return "2"


@needs("timeout", "all_reduce", "broadcast")
def test_a_timeout_says_what_the_missing_rank_did_last(kit: Kit) -> None:
    if kit.in_threads or kit.device != "cpu":
        pytest.skip("only processes whose waits end on the host are watched over")
    if kit.has_no_store:
        pytest.skip("the backend's runtime brings no store, in which the ranks could tell of themselves")
    first, second, _ = kit.run_alone(3, wait_for_the_third)
    assert re.search(r"rank 2\b.* last finished broadcast #\d+ at .+ and is alive \(\d\.\d s ago\)", first), first
    assert first == second, "the ranks were told different things"


def wait_for_the_third() -> str:
    dist.broadcast(numbers(1), 0)
    if dist.get_rank() == 2:
        return ""
    begin = time.monotonic()
    error = error_of(DistTimeoutError, settled, dist.all_reduce, numbers(1), timeout=_A_BEAT_S)
    took = time.monotonic() - begin
    assert took < _A_BEAT_S + _SLACK_S, f"it took {took:.2f} s"
    return str(error)


@pytest.mark.parametrize("op", [pytest.param(op, marks=needs(op)) for op in ("recv", "barrier")])
def test_the_time_out_of_a_group_holds_for_its_calls(kit: Kit, op: str) -> None:
    if kit.device != "cpu":
        pytest.skip("on a GPU recv() orders the stream and does not block the host")
    kit.run_alone(2, group_of_little_time, op)


def group_of_little_time(op: str) -> None:
    group = dist.new_group([0, 1], timeout=_GROUP_S)
    if dist.get_rank() == 1:
        return
    begin = time.monotonic()
    if op == "recv":
        error = error_of(DistTimeoutError, dist.recv, numbers(0), 1, group)
    else:
        error = error_of(DistTimeoutError, dist.barrier, group)
    took = time.monotonic() - begin
    assert took < _GROUP_S + _SLACK_S, f"it took {took:.2f} s: {error}"


@needs("timeout", "send", "recv", "barrier")
def test_a_receive_ends_at_its_timeout_and_swallows_nothing(kit: Kit) -> None:
    if kit.device != "cpu":
        pytest.skip("what a GPU waits for cannot be withdrawn")
    kit.run_alone(2, late_message)


def late_message() -> None:
    rank = dist.get_rank()
    if rank == 0:
        unused, array = numbers(-1), numbers(-1)
        withdrawable = begun(dist.irecv(unused, 1)).cancel()
        begin = time.monotonic()
        error = error_of(DistTimeoutError, dist.recv, array, 1, timeout=_TIMEOUT_S)
        took = time.monotonic() - begin
        assert _TIMEOUT_S * 0.9 < took < _TIMEOUT_S + _SLACK_S, f"it took {took:.2f} s: {error}"
        if not withdrawable:
            return
        dist.barrier()
        dist.recv(array, 1)
        same(array, host(8))
    else:
        try:
            dist.barrier()
        except DistError:  # rank 0 could not withdraw its receive, and has given the group up
            return
        dist.send(numbers(8), 0)


@needs("timeout", "send", "recv")
def test_after_a_wait_that_was_too_short_one_may_wait_again(kit: Kit) -> None:
    if kit.device != "cpu":
        pytest.skip("on a GPU wait() orders the stream and does not block the host")
    kit.run(2, wait_again)


def wait_again() -> None:
    array = numbers(-1)
    if dist.get_rank() == 0:
        work = begun(dist.irecv(array, 1))
        error_of(DistTimeoutError, work.wait, 0.05)
        assert not work.is_completed()
        assert work.exception() is None
        dist.send(numbers(0), 1)  # now the other one sends
        assert work.wait(20.0) is True
        same(array, host(9))
    else:
        dist.recv(array, 0)
        dist.send(numbers(9), 0)


@needs("timeout", "async", "all_reduce", "send", "recv")
def test_a_wait_that_is_too_short_says_what_it_has_waited_for(kit: Kit) -> None:
    if kit.device != "cpu":
        pytest.skip("on a GPU wait() orders the stream and does not block the host")
    kit.run(2, wait_for_a_collective)


def wait_for_a_collective() -> None:
    array = numbers(1)
    if dist.get_rank() == 0:
        work = begun(dist.all_reduce(array, async_op=True))
        error = error_of(DistTimeoutError, work.wait, 0.05)
        assert "all_reduce" in str(error), f"it does not say what it has waited for: {error}"
        dist.send(numbers(0), 1)  # now the other one comes
    else:
        dist.recv(numbers(-1), 0)
        work = begun(dist.all_reduce(array, async_op=True))
    assert work.wait(20.0) is True
    same(array, host(2))


@needs("timeout", "all_reduce")
def test_a_generous_timeout_changes_nothing(kit: Kit) -> None:
    kit.run(2, generous)


def generous() -> None:
    array = numbers(1)
    dist.all_reduce(array, timeout=30.0)
    same(array, host(2))


@needs("all_reduce")
def test_a_timeout_of_its_own_is_refused_where_it_is_not_declared(kit: Kit) -> None:
    if not kit.lacks("timeout"):
        pytest.skip("time-outs of single calls are declared, and proved by the other tests")
    kit.run(2, refused)


def refused() -> None:
    error = error_of(UnsupportedOperationError, dist.all_reduce, numbers(1), timeout=1.0)
    assert "timeout" in str(error), error


@needs("barrier")
def test_a_monitored_barrier_names_the_missing_ranks_to_all_others(kit: Kit) -> None:
    if kit.has_no_store:
        pytest.skip("the backend's runtime brings no store, so that this is a plain barrier")
    texts = kit.run_alone(4, monitored)
    assert texts[0] == texts[2], f"the ranks were told different things: {texts}"
    assert re.search(r"\b1, 3\b", texts[0] or ""), texts[0]


def monitored() -> str | None:
    dist.monitored_barrier(timeout=30.0)
    if dist.get_rank() in (1, 3):
        return None
    begin = time.monotonic()
    error = error_of(DistTimeoutError, dist.monitored_barrier, timeout=_TIMEOUT_S, wait_all_ranks=True)
    assert time.monotonic() - begin < _TIMEOUT_S + _SLACK_S
    return str(error)


@needs("all_reduce", "timeout")
def test_a_timeout_that_makes_no_sense_is_refused(kit: Kit) -> None:
    kit.run(2, nonsense)


def nonsense() -> None:
    if dist.get_rank() == 0:
        error_of(ValueError, dist.all_reduce, numbers(1), timeout=-1)
        error_of(TypeError, dist.all_reduce, numbers(1), timeout="soon")
    still_usable()
