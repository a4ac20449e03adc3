"""One descriptor tells all groups of the end of a process."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator

import pytest
from tests.processes import idle_process

from rankwise_network import processes

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="descriptors of processes need Linux")

PATIENCE_S = 30.0


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with idle_process() as made:
        yield made


def test_all_who_watch_share_it_until_the_last_has_gone(process: subprocess.Popen[bytes]) -> None:
    first, second = processes.watch(process.pid), processes.watch(process.pid)
    assert first == second
    processes.release(first)
    assert os.fstat(second)
    processes.release(second)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(second)


def test_a_process_that_has_ended_is_not_taken_for_the_next_of_its_number(process: subprocess.Popen[bytes]) -> None:
    first = processes.watch(process.pid)
    process.kill()
    assert select.select([first], [], [], PATIENCE_S)[0]  # it has ended, and its number is not free yet
    second = processes.watch(process.pid)
    assert second != first
    for descriptor in (first, second):
        processes.release(descriptor)


def test_nobody_watches_itself() -> None:
    assert processes.watch(os.getpid()) == -1
