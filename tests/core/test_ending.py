"""What ends once, and what the exceptions of signal handlers leave behind: nothing that is locked."""

import logging
import random
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.threads import at_once, soon, within

from rankwise.basics.ending import Ending
from rankwise.basics.work import FutureWork
from rankwise.collective.issue_order import IssueOrder
from rankwise.errors import DistTimeoutError

PATIENCE_S = 10.0
LEEWAY_S = 5.0

TRIALS = 300


class Interrupt(Exception):
    """What the signal handler of these tests raises."""


def raise_interrupt(*_):
    raise Interrupt


@pytest.fixture
def interrupted():
    """Runs a function over and over until a signal handler has raised an exception somewhere in it."""
    chance, before = random.Random(7), signal.signal(signal.SIGALRM, raise_interrupt)

    def run(function):
        try:
            # Again after a while, as an exception in a finalizer is ignored.
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-5, 2e-4), 0.2)
            while True:
                function()
        except Interrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)

    yield run
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_only_the_first_telling_counts():
    ending = Ending()
    assert not ending.wait(0)
    assert ending.tell(3)
    assert not ending.tell(None, ValueError("too late"))
    assert ending.wait()
    assert (ending.told, ending.value, ending.error) == (True, 3, None)


def test_all_who_wait_are_woken_at_once():
    ending = Ending()
    with ThreadPoolExecutor(5) as threads, within(LEEWAY_S):
        waiting = [threads.submit(ending.wait, PATIENCE_S) for _ in range(5)]
        ending.tell()
        assert [each.result(PATIENCE_S) for each in waiting] == [True] * 5


def test_a_wait_that_ends_early_leaves_nothing_behind():
    ending = Ending()
    assert not ending.wait(0.001)
    assert not ending._bells


def test_calls_are_made_once_and_may_fail(caplog):
    ending, called = Ending(), []

    def fail():
        raise ValueError("of the callback")

    ending.then(fail)
    ending.then(lambda: called.append("before"))
    with caplog.at_level(logging.ERROR, "rankwise"):
        ending.tell()
    ending.then(lambda: called.append("after"))
    assert called == ["before", "after"]
    assert "of the callback" in caplog.text


def test_what_is_added_while_the_end_is_told_is_called():
    ending, called = Ending(), []

    class Meanwhile(list):
        def append(self, call):
            ending.tell()  # by another thread, which finds nothing to call
            super().append(call)

    ending._calls = Meanwhile()
    ending.then(lambda: called.append("once"))
    assert called == ["once"]
    assert not ending.tell()


def test_a_waiter_sees_the_end_when_nobody_rings():
    ending = Ending()
    soon(setattr, ending, "told", True)  # by a thread that is interrupted before it rings
    with within(2 * PATIENCE_S):
        assert ending.wait(3 * PATIENCE_S)


def test_an_interrupted_wait_does_not_keep_a_work_from_ending(interrupted):
    def wait(work):
        try:
            work.wait(1e-5)
        except DistTimeoutError:
            work.is_completed()

    for _ in range(TRIALS):
        work = FutureWork()
        interrupted(lambda work=work: wait(work))
        at_once(work.succeed, [None], PATIENCE_S)
        assert work.wait(PATIENCE_S)


def test_an_interrupt_does_not_keep_the_turn(interrupted):
    order = IssueOrder("test")

    def call():
        assert order.enter()
        try:
            pass
        finally:
            order.turn.holder = None
            if order.turn.watchers:
                order.tell()

    for _ in range(TRIALS):
        interrupted(call)
        assert order.turn.holder is None
        at_once(order.drain, [5], PATIENCE_S)
    order.close()
