"""Runs `programs/audit.py` as a job of two ranks under `rankwise run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "audit.py"
_SECRETS = ("RANKWISE_SECRET_FD", "RANKWISE_SECRET_FILE")


class Job:
    """A running job: its launcher, and what its ranks have told."""

    def __init__(self, process: subprocess.Popen[str], ranks: list[dict[str, Any]]) -> None:
        self.process, self.ranks = process, ranks

    def processes(self) -> list[Path]:
        """Return the folders in /proc of the launcher and of all that it has started."""
        parents = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(status.parent.name)] = int(fields[1])
        wanted = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
            wanted |= more
        return [Path("/proc", str(pid)) for pid in sorted(wanted)]

    def end(self) -> tuple[str, str]:
        """Let the ranks go on, and return what the job prints from now on."""
        return self.process.communicate("\n\n", timeout=60)


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Any]:
    """Run the program until all its ranks have worked together."""

    @contextmanager
    def run(*arguments: str, **variables: str) -> Iterator[Job]:
        clean = {name: value for name, value in os.environ.items() if name not in _SECRETS}
        command = [sys.executable, "-m", "rankwise", "run", "-n", "2", str(PROGRAM), str(tmp_path), *arguments]
        pipes: dict[str, Any] = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        with subprocess.Popen(command, text=True, env={**clean, **variables}, **pipes) as process:
            try:
                assert process.stdout is not None
                for _ in range(2):
                    if "ready" not in process.stdout.readline():
                        pytest.fail(process.communicate(timeout=30)[1])
                yield Job(process, [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)])
            finally:
                process.kill()

    return run
