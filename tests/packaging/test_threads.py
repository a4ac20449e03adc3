"""Threads of the library begin in one way, which an interrupt cannot break: `rankwise.basics.interrupts.start_thread`.

An exception that a signal's handler raises within `Thread.start` leaves the interpreter's books of threads in disorder:
a `KeyError` on the new thread, which then never runs, or a thread that is listed for ever.
"""

from __future__ import annotations

import ast
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from rankwise.basics import interrupts as threads

ROOT = Path(__file__).parents[2]
#: All but the kit, whose threads are those of tests.
PLUGINS = ("dask", "gloo_tcp", "launch", "mpi", "nccl", "network", "ray", "stores", "tools", "torch", "watch")
SOURCES = ["core/rankwise", *(f"plugins/{name}/src" for name in PLUGINS)]
#: A timer that ends the process, at its end.
ELSEWHERE = {("plugins/mpi/src/rankwise_mpi/process/leaving.py", "timer.start()")}
RUN_S = 1.0
PATIENCE_S = 10.0


@pytest.mark.parametrize("source", SOURCES)
def test_threads_begin_in_one_way(source: str) -> None:
    found = set()
    for path in (ROOT / source).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Attribute):
                begun = ast.unparse(node.func.value).lower()
                if node.func.attr == "start" and ("thread" in begun or "timer" in begun):
                    found.add((path.relative_to(ROOT).as_posix(), ast.unparse(node)))
    assert found - ELSEWHERE <= {("core/rankwise/basics/interrupts.py", "thread.start()")}


class StoppedError(Exception):
    """What the handler raises."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no such timers")
def test_an_interrupt_leaves_a_thread_started_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise StoppedError

    broken: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", broken.append)
    chance, interrupted, ran, begun = random.Random(0), 0, [], 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        end = time.monotonic() + RUN_S
        while time.monotonic() < end:
            thread = threading.Thread(target=ran.append, args=(None,))
            begun += 1
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 3e-4))
                    threads.start_thread(thread)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except StoppedError:
                interrupted += 1
            if thread.ident is None:
                begun -= 1
            else:
                thread.join(PATIENCE_S)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted
    assert not broken
    assert len(ran) == begun
    assert not threading._limbo  # type: ignore[attr-defined]
