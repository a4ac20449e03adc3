"""Runs ranks on hosts that are network namespaces of this machine."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[2] / "benchmarks")]
from tests.by_reference import command, returned  # noqa: E402
from two_hosts import Hosts, forbidden  # noqa: E402

__all__ = ["PORT", "Hosts", "all_say", "between_hosts", "go_on", "results", "run", "started"]

PORT = 29444

_REASON = forbidden()
between_hosts = pytest.mark.skipif(bool(_REASON), reason=_REASON or "namespaces are permitted")


@contextmanager
def started(
    hosts: Hosts, folder: Path, where: list[int], function: Callable[..., object], *args: object, **env: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Call a function of `across` on one process for each number in `where`, which tells its host."""
    secret = folder / "secret"
    if not secret.exists():
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
    common = {
        **os.environ,
        "WORLD_SIZE": str(len(where)),
        "MASTER_ADDR": hosts.addresses[where[0]],
        "MASTER_PORT": str(PORT),
        "RANKWISE_SECRET_FILE": str(secret),
        **env,
    }
    processes = [
        subprocess.Popen(
            hosts.command(host, *command(function, *args)),
            cwd=HERE,
            env={**common, "RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, host in enumerate(where)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def all_say(word: str, processes: list[Any]) -> None:
    """Wait until each process has printed a word."""
    for process in processes:
        assert process.stdout.readline() == f"{word}\n"


def go_on(processes: list[Any]) -> None:
    """Let processes go on that read a line."""
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()


def results(processes: list[subprocess.Popen[str]], timeout_s: float = 60) -> list[Any]:
    """Return what each process has printed last."""
    deadline = time.monotonic() + timeout_s
    found = []
    for process in processes:
        out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        assert process.returncode == 0, err[-3000:]
        found.append(returned(out))
    return found


def run(
    hosts: Hosts,
    folder: Path,
    where: list[int],
    function: Callable[..., object],
    *args: object,
    timeout_s: float = 60,
    **env: str,
) -> list[Any]:
    """Call a function of `across` on each rank, and return what each has returned."""
    with started(hosts, folder, where, function, *args, **env) as processes:
        return results(processes, timeout_s)
