"""What tests of several processes share: environments, ports, processes, and waiting for what comes soon."""

from __future__ import annotations

import gc
import os
import select
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_LOOK_S = 0.01


#: For tests that watch how a process ends.
needs_descriptors = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"),
    reason="this system has no descriptors of processes",
)


def environment(*folders: Path) -> dict[str, str]:
    """Return an environment in which a process also finds the modules of some folders."""
    paths = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths).rstrip(os.pathsep)}


def variables(text: str) -> dict[str, str]:
    """Return variables that are written as `NAME=value NAME=value`."""
    return dict(word.split("=", 1) for word in text.split())


def free_port() -> int:
    """Return a port that nobody listened at a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be noticed does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextmanager
def idle_process(exit_code: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """Have a process that does nothing until its input ends."""
    with subprocess.Popen(["sh", "-c", 'read line; exit "$0"', str(exit_code)], stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(condition: Callable[[], object], within_s: float) -> bool:
    """Wait until something is so, and tell whether it came to be."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_S)
    return True


@contextmanager
def forked(body: Callable[[], object]) -> Iterator[int]:
    """Have a forked process that calls a function, which must end well."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    yield pid
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def descendants(pid: int) -> set[int]:
    """Return the processes that a process has started, and what these have."""
    found = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(ProcessLookupError, FileNotFoundError):  # the thread has ended since
            for child in map(int, path.read_text().split()):
                found |= {child, *descendants(child)}
    return found


def held() -> tuple[int, int]:
    """Return how many descriptors and threads this process has."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def read_terminal(leader: int, within_s: float, until: str = "") -> str:
    """Read what is shown on a terminal until there are some words, or else until the last writer is gone."""
    shown, end = b"", time.monotonic() + within_s
    while not until or until.encode() not in shown:
        assert select.select([leader], [], [], max(0.0, end - time.monotonic()))[0], shown
        try:
            shown += os.read(leader, 1 << 16)
        except OSError:  # how the system tells that nobody writes any more
            break
    return shown.decode(errors="replace")
