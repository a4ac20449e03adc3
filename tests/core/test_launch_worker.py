"""One rank's process, as the launcher sees it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rankwise_launch.worker import Worker
from rankwise_network import processes

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system has no descriptors of processes")

PATIENCE_MS = 10_000


@contextmanager
def ended(code: str) -> Iterator[tuple[Worker, int]]:
    """Run a program to its end; give its worker, and a descriptor of its process."""
    worker = Worker(0, 0, None)
    worker.start([sys.executable, "-c", code], dict(os.environ), (), subprocess.DEVNULL)
    descriptor = os.pidfd_open(worker.pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        assert poller.poll(PATIENCE_MS), "it has not ended"
        yield worker, descriptor
    finally:
        worker.signal(signal.SIGKILL)
        worker.process.communicate()
        os.close(descriptor)


@pytest.mark.parametrize(
    ("code", "exit_code", "words"),
    [
        ("raise SystemExit(7)", 7, "its process has ended with exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", -9, "its process was killed by SIGKILL"),
    ],
)
def test_other_ranks_can_read_how_a_rank_ended_after_its_launcher_has(
    monkeypatch: pytest.MonkeyPatch, code: str, exit_code: int, words: str
) -> None:
    monkeypatch.setattr(processes, "_reaped_status", lambda descriptor: None)  # as on a kernel before Linux 6.15
    with ended(code) as (worker, descriptor):
        assert worker.poll()
        worker.signal(signal.SIGTERM)  # as all are told to end after a failure
        assert (worker.exit_code, worker.stopped, worker.poll()) == (exit_code, False, False)
        assert processes.process_ending(descriptor, worker.pid) == words
        assert not worker.group_is_there()
        worker.bury()
        assert worker.process.returncode == exit_code
