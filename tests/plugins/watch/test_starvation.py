"""A process that gets no processor is slow, and not hung; one that stands still is hung whatever the machine does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from rankwise.groups.handshake import process_space, started_at
from rankwise_watch import starvation
from rankwise_watch.liveness import Processes
from rankwise_watch.starvation import Starvation, Thread
from rankwise_watch.watcher import Watcher

PATIENCE_S = 30.0
SPINNING = "import sys; print(flush=True)\nwhile True: pass"
RESTING = "import sys; print(flush=True); sys.stdin.read()"

pytestmark = pytest.mark.skipif(not starvation.look(os.getpid()), reason="the kernel does not tell of its scheduler")


@contextmanager
def running(program: str, prepare: str = "") -> Iterator[int]:
    """Run a program that says when it has begun; yield its number."""
    command = [sys.executable, "-c", f"import os; {prepare}\n{program}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def test_a_process_behind_others_is_starved_and_one_that_stands_still_is_not() -> None:
    core = min(os.sched_getaffinity(0))
    alone = f"os.sched_setaffinity(0, [{core}])"
    behind = f"{alone}; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"
    with (
        running(SPINNING, alone),
        running(SPINNING, behind) as starving,
        running(RESTING) as resting,
        running(SPINNING) as stopped,
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


def test_what_a_rank_waits_for_a_processor_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    starved = SimpleNamespace(s=0.0)
    monkeypatch.setattr(Starvation, "starved_s", lambda self, pid: starved.s)
    processes = Processes(0)
    mine = {"host": "here", "pid": os.getppid(), "space": process_space(), "started": started_at(os.getppid())}
    processes.learn({1: json.dumps(mine).encode(), 2: b'{"host": "there"}'})
    watcher = SimpleNamespace(_processes=processes, _limit_s=5.0)
    try:
        starved.s = 4.0
        assert not Watcher._is_silent(watcher, 1, 8.0)  # type: ignore[arg-type]
        assert Watcher._is_silent(watcher, 1, 9.0)  # type: ignore[arg-type]
        assert Watcher._is_silent(watcher, 2, 5.0)  # type: ignore[arg-type]
    finally:
        processes.close()
