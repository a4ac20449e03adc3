"""The line of one communicator's operations: one at a time, on one thread, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.threads import soon, within

from rankwise.basics.deadline import Deadline
from rankwise.basics.work import FutureWork
from rankwise.collective.issue_order import IssueOrder, Operation
from rankwise.errors import DistBackendError, DistTimeoutError, GroupAbortedError

PATIENCE_S = 20.0


@pytest.fixture
def order() -> Iterator[IssueOrder]:
    made = IssueOrder("test")
    yield made
    made.turn.holder = None
    made.close()
    assert made.turn.watchers == 0


def later(order: IssueOrder, operation: Operation, timeout_s: float = PATIENCE_S) -> FutureWork:
    return order.later("an operation", operation, Deadline(timeout_s), lambda error: None)


def test_operations_run_one_after_another_on_one_thread(order: IssueOrder) -> None:
    ran: list[tuple[int, bool, threading.Thread]] = []
    works = [
        later(order, lambda n=n: ran.append((n, order.serves_here(), threading.current_thread())))  # type: ignore[misc]
        for n in range(5)
    ]
    for work in works:
        work.wait(PATIENCE_S)
    assert [(number, serves) for number, serves, _ in ran] == [(number, True) for number in range(5)]
    assert len({thread for _, _, thread in ran}) == 1
    assert not order.serves_here()


def test_an_operation_that_waits_has_the_turn_before_those_that_come_later(order: IssueOrder) -> None:
    assert order.enter()
    assert not order.enter()
    works = [later(order, lambda: None) for _ in range(2)]
    assert order.length() == order.turn.queued == 2
    assert all(map(order.holds_up, works))
    order.turn.holder = None
    assert not order.enter()  # the line is before it
    order.tell()
    works[1].wait(PATIENCE_S)
    order.drain(PATIENCE_S)
    assert order.length() == order.turn.queued == 0
    assert not any(map(order.holds_up, works))
    assert order.enter()


@pytest.mark.parametrize("who", ["thread", "drain"])
def test_a_turn_that_is_given_back_without_a_word_is_noticed(order: IssueOrder, who: str) -> None:
    assert order.enter()
    soon(setattr, order.turn, "holder", None)  # by a thread that is interrupted before it tells
    with within(PATIENCE_S):
        if who == "drain":
            order.drain(1.5 * PATIENCE_S)
        else:
            later(order, lambda: None).wait(1.5 * PATIENCE_S)


def test_draining_gives_up_at_its_time_out(order: IssueOrder) -> None:
    assert order.enter()
    later(order, lambda: None)
    with pytest.raises(DistTimeoutError, match=r"1 operations still wait after 0\.01 s"):
        order.drain(0.01)


def test_what_has_not_begun_fails_when_the_group_is_aborted(order: IssueOrder) -> None:
    ran: list[int] = []
    assert order.enter()
    works = [later(order, lambda: ran.append(1)) for _ in range(2)]
    order.abort(DistBackendError("the cable is out"))
    assert order.length() == order.turn.queued == 0
    for work in works:
        with pytest.raises(DistBackendError, match="the cable is out"):
            work.wait(PATIENCE_S)
    order.turn.holder = None
    order.tell()
    later(order, lambda: None).wait(PATIENCE_S)
    assert not ran


def test_closing_waits_for_what_runs_and_refuses_what_comes(order: IssueOrder) -> None:
    go, ran = threading.Event(), []
    works = [later(order, lambda: ran.append(go.wait(PATIENCE_S))) for _ in range(2)]
    soon(go.set)
    order.close()
    assert ran == [True, True]
    assert all(work.is_completed() for work in works)
    with pytest.raises(GroupAbortedError):
        later(order, lambda: None)


def test_an_operation_whose_time_passes_in_the_line_is_given_up(order: IssueOrder) -> None:
    assert order.enter()
    work = later(order, lambda: None, 0.01)
    with pytest.raises(DistTimeoutError, match=r"an operation: .* within 0\.01 s: operations before it .* take longer"):
        work.wait()


def test_an_operation_goes_on_that_a_wait_is_too_short_for(order: IssueOrder) -> None:
    assert order.enter()
    work = later(order, lambda: None)
    with pytest.raises(DistTimeoutError, match=r"an operation: .*; it goes on"):
        work.wait(0.01)
    order.turn.holder = None
    order.tell()
    assert work.wait(PATIENCE_S)


def test_an_error_of_an_operation_is_raised_by_its_wait(order: IssueOrder) -> None:
    work = later(order, lambda: [][0])
    with pytest.raises(IndexError):
        work.wait(PATIENCE_S)
    later(order, lambda: None).wait(PATIENCE_S)


def test_nobody_takes_the_turn_of_a_line_that_is_closed() -> None:
    order = IssueOrder("closed")
    order.close()
    assert not order.turn.take(object())
