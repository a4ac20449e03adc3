"""The thread beside the program: it answers in time or not at all, and leaves nothing behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from tests.threads import within

from rankwise.errors import DistStoreError
from rankwise_watch.background import Background

PATIENCE_S = 10.0
#: How long a job takes, as one that asks a store that stands still.
JOB_S = 1.5


class Helper(Background):
    """Counts its rounds, and remembers its end."""

    def __init__(self, first_s: float = 1e6, every_s: float = 1e6, sooner_s: float = 0.0) -> None:
        super().__init__(first_s, every_s)
        self.rounds = threading.Semaphore(0)
        self.ended = False
        self.sooner_s = sooner_s
        self.late_s: list[float] = []
        self.begin()

    def round(self, late_s: float) -> None:
        self.late_s.append(late_s)
        self.rounds.release()
        self.advance(self.sooner_s)
        raise DistStoreError("the store is gone")  # which must not end the thread

    def farewell(self) -> None:
        self.ended = True


@pytest.fixture
def helper() -> Iterator[Helper]:
    made = Helper()
    yield made
    made.stop()


def test_an_answer_comes_from_the_thread(helper: Helper) -> None:
    assert helper.ask(lambda: threading.current_thread().name, PATIENCE_S) == "rankwise watch"


def test_what_has_time_is_done_with_what_comes_next(helper: Helper) -> None:
    done: list[str] = []
    helper.do(lambda: done.append("has time"), at_once=False)
    helper.ask(lambda: done.append("comes next"), PATIENCE_S)
    assert done == ["has time", "comes next"]


def test_whoever_asks_waits_for_so_long_and_no_longer(helper: Helper) -> None:
    go_on = threading.Event()
    helper.do(lambda: go_on.wait(PATIENCE_S))
    with within(PATIENCE_S / 2):
        assert helper.ask(lambda: 1, 0.05) is None
    go_on.set()


@pytest.mark.parametrize("error", [DistStoreError("gone"), ValueError("a flaw")])
def test_a_failure_is_no_answer_and_does_not_end_the_thread(helper: Helper, error: Exception) -> None:
    def fail() -> int:
        raise error

    assert helper.ask(fail, PATIENCE_S) is None
    assert helper.ask(lambda: 2, PATIENCE_S) == 2


def test_the_thread_may_ask_itself(helper: Helper) -> None:
    assert helper.ask(lambda: helper.ask(lambda: 3, PATIENCE_S), PATIENCE_S) == 3


def test_what_a_job_waits_for_is_no_lateness_of_this_process() -> None:
    helper = Helper(first_s=0.1)
    helper.do(lambda: threading.Event().wait(JOB_S))
    assert helper.rounds.acquire(timeout=PATIENCE_S)
    helper.stop()
    assert helper.late_s[0] < JOB_S / 2


def test_a_descriptor_is_heard_once(helper: Helper) -> None:
    read, write = os.pipe()
    heard = threading.Semaphore(0)
    helper.ask(lambda: helper.hear(read, heard.release), PATIENCE_S)
    os.write(write, b"x")
    assert heard.acquire(timeout=PATIENCE_S)
    assert helper.ask(lambda: 4, PATIENCE_S) == 4  # the thread has gone through its loop again
    assert not heard.acquire(blocking=False)
    os.close(read)
    os.close(write)


def test_a_round_may_have_the_next_one_sooner() -> None:
    helper = Helper(0.0, 1e6, sooner_s=1e6)
    try:
        assert all(helper.rounds.acquire(timeout=PATIENCE_S) for _ in range(3))
    finally:
        helper.stop()


def test_rounds_go_on_after_one_that_failed() -> None:
    helper = Helper(0.0, 0.01)
    for _ in range(3):
        assert helper.rounds.acquire(timeout=PATIENCE_S)
    helper.stop()


def test_the_end_does_what_was_asked_before_and_gives_everything_back() -> None:
    descriptors, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    helper = Helper()
    done: list[int] = []
    helper.do(lambda: done.append(1))
    helper.stop()
    assert done == [1]
    assert helper.ended
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert set(threading.enumerate()) <= threads
    assert helper.ask(lambda: 5, PATIENCE_S) is None
    helper.do(lambda: done.append(2))
    helper.stop()
    assert done == [1]
