"""A process that gets no processor is slow, and not hung; one that stands still is hung whatever the machine does."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import SimpleNamespace

import pytest
from tests import fresh
from tests.by_reference import command

import rankwise as dist
from rankwise.groups.handshake import process_space, started_at
from rankwise_watch import starvation
from rankwise_watch.heartbeat import Beats, Lateness
from rankwise_watch.judge import Judge
from rankwise_watch.liveness import Processes
from rankwise_watch.starvation import Starvation, Thread

PATIENCE_S = 30.0

pytestmark = pytest.mark.skipif(not starvation.look(os.getpid()), reason="the kernel does not tell of its scheduler")


@contextmanager
def running(function: Callable[..., object], *args: object) -> Iterator[int]:
    """Have a process call what says when it has begun; yield its number."""
    with subprocess.Popen(command(function, *args), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def test_a_process_behind_others_is_starved_and_one_that_stands_still_is_not() -> None:
    core = min(os.sched_getaffinity(0))
    with (
        running(fresh.spin, core),
        running(fresh.spin, core, os.SCHED_IDLE) as starving,
        running(fresh.rest) as resting,
        running(fresh.spin) as stopped,
    ):
        os.kill(stopped, signal.SIGSTOP)
        books, end = Starvation(), time.monotonic() + PATIENCE_S
        for pid in (resting, stopped):
            while any(thread.is_runnable for thread in starvation.look(pid).values()):
                time.sleep(0.01)
        while books.starved_s(starving) < 0.5 and time.monotonic() < end:
            assert books.starved_s(resting) == books.starved_s(stopped) == 0.0
            time.sleep(0.1)
        assert books.starved_s(starving) >= 0.5
        books.forget(starving)
        assert books.starved_s(starving) == 0.0


def test_the_waits_of_threads_that_take_turns_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now, books = SimpleNamespace(s=0.0, waited_s=0.0), Starvation()
    monkeypatch.setattr(starvation, "monotonic", lambda: now.s)
    monkeypatch.setattr(
        starvation, "look", lambda pid: {str(number): Thread(False, 0.0, now.waited_s) for number in range(10)}
    )
    assert books.starved_s(1) == 0.0
    now.s, now.waited_s = 1.0, 0.06
    assert books.starved_s(1) == 1.0


@pytest.mark.parametrize(
    ("later", "starved_s"),
    [
        (Thread(True, 1.0, 0.0), 0.0),  # it has run all the time: something holds the interpreter
        (Thread(True, 0.1, 0.0), 1.0),  # it is still waiting
        (Thread(False, 0.1, 0.9), 1.0),  # it waited, ran, and sleeps
        (Thread(False, 0.1, 0.0), 0.0),  # it sleeps
    ],
)
def test_a_thread_is_starved_that_wants_a_processor_for_most_of_the_time(
    monkeypatch: pytest.MonkeyPatch, later: Thread, starved_s: float
) -> None:
    now, books = SimpleNamespace(s=0.0, threads={"1": Thread(True, 0.0, 0.0)}), Starvation()
    monkeypatch.setattr(starvation, "monotonic", lambda: now.s)
    monkeypatch.setattr(starvation, "look", lambda pid: now.threads)
    assert books.starved_s(1) == 0.0
    now.s, now.threads = 1.0, {"1": later, "2": Thread(True, 0.0, 0.0)}
    assert books.starved_s(1) == starved_s


@pytest.mark.parametrize(("wants_a_processor", "is_hung"), [(True, False), (False, True)])
def test_a_rank_that_may_have_starved_unseen_is_not_judged_at_the_first_look(
    monkeypatch: pytest.MonkeyPatch, wants_a_processor: bool, is_hung: bool
) -> None:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(starvation, "monotonic", lambda: now.s)
    monkeypatch.setattr(starvation, "look", lambda pid: {"1": Thread(wants_a_processor, 0.0, 0.0)})
    processes = Processes(0)
    mine = {"host": "here", "pid": os.getppid(), "space": process_space(), "started": started_at(os.getppid())}
    processes.learn({1: json.dumps(mine).encode()})
    judge = Judge(Beats(dist.HashStore(), 0), processes, Lateness(1.0, monotonic()), 5.0, 5.0)
    try:
        assert judge.is_silent(1, 6.0) is is_hung  # of whom nobody has waited before
        now.s = 2.0
        assert judge.is_silent(1, 8.0) is is_hung  # it has starved meanwhile
        monkeypatch.setattr(starvation, "look", lambda pid: {"1": Thread(True, now.s, 0.0)})
        now.s = 4.0
        assert judge.is_silent(1, 10.0) is is_hung
        now.s = 5.0
        assert judge.is_silent(1, 11.0)  # and has run for half of the limit, and said nothing
    finally:
        processes.close()


def test_what_a_rank_waits_for_a_processor_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    starved = SimpleNamespace(s=0.0)
    monkeypatch.setattr(Starvation, "starved_s", lambda self, pid, unseen_s: starved.s)
    processes = Processes(0)
    mine = {"host": "here", "pid": os.getppid(), "space": process_space(), "started": started_at(os.getppid())}
    processes.learn({1: json.dumps(mine).encode(), 2: b'{"host": "there"}'})
    judge = Judge(Beats(dist.HashStore(), 0), processes, Lateness(1.0, monotonic()), 5.0, 5.0)
    try:
        starved.s = 4.0
        assert not judge.is_silent(1, 8.0)
        assert judge.is_silent(1, 9.0)
        assert judge.is_silent(2, 5.0)
    finally:
        processes.close()


@pytest.mark.parametrize("seed", range(20))
def test_lateness_is_what_answers_came_later_than_a_beat(seed: int) -> None:
    rng = random.Random(seed)
    lateness, now, late = Lateness(1.0, 0.0), 0.0, list[tuple[float, float]]()
    for _ in range(50):
        gap_s = rng.choice([0.1, 1.0, 1.5, 4.0])
        now += gap_s
        assert lateness.answered(now) == pytest.approx(gap_s)
        late.append((now, max(0.0, gap_s - 1.0)))
        since = now - rng.choice([0.5, 3.0, 10.0])
        assert lateness.within_s(since) == pytest.approx(sum(late_s for at, late_s in late if at > since))
    assert lateness.answered_at == now


def test_what_this_ranks_own_heartbeats_were_late_by_is_no_silence_of_others() -> None:
    lateness = Lateness(1.0, monotonic() - 8.0)
    for ago_s in (6.0, 3.0, 0.0):  # each a second later than it should have been
        lateness.answered(monotonic() - ago_s)
    judge = Judge(Beats(dist.HashStore(), 0), Processes(0), lateness, 5.0, 5.0)
    assert lateness.within_s(monotonic() - 7.0) == pytest.approx(5.0, abs=0.1)
    assert not judge.is_silent(2, 9.0)
    assert judge.is_silent(2, 10.5)
