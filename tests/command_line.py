"""The command `rankwise` as a user meets it: in this process, or in one of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests import warm

import rankwise
from rankwise.cli import main

SOURCE = Path(rankwise.__file__).parents[1]

NOTHING: Mapping[str, str] = {}
#: What would tell of a job around the command.
_OF_A_JOB = (
    *("RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS"),
    *("RANKWISE_SECRET_FD", "RANKWISE_SECRET_FILE", "RANKWISE_STORE"),
)


class Shell:
    """Runs `rankwise` in a folder of its own, which is also where it finds modules."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self.folder, self.timeout_s = folder, timeout_s
        self.path = [str(folder), str(SOURCE)]
        self.environment = {name: value for name, value in os.environ.items() if name not in _OF_A_JOB}

    def start(self, *arguments: str, module: str = "rankwise", env: Mapping[str, str] = NOTHING, **more: Any) -> Any:
        """Start a command, perhaps with more variables."""
        variables = {**self.environment, "PYTHONPATH": os.pathsep.join(self.path), **env}
        return warm.start(["-m", module, *arguments], cwd=self.folder, env=variables, **more)

    def run(self, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Run one likewise, and return how it has ended and what it has printed."""
        with self.start(*arguments, **settings) as process:
            out, err = process.communicate(self.timeout_s)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


class Launcher(Shell):
    """Runs `rankwise run` in a folder of its own."""

    def start(self, *arguments: str, module: str = "rankwise", **settings: Any) -> Any:
        return super().start(*(["run"] if module == "rankwise" else []), *arguments, module=module, **settings)


def run_here(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    """Run a command that starts no processes in this one, and return its exit code and what it has printed."""
    try:
        code: object = main(list(arguments))
    except SystemExit as end:
        code = end.code
    return code, *capsys.readouterr()
