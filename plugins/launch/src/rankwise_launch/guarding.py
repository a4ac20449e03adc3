"""The launcher's side of `guard`, the process that kills what a killed launcher leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rankwise_launch.config import ExitCode, LaunchError


class Guard:
    """A process that outlives the launcher for as long as it takes to kill the process groups that it left.

    Args:
        secret_fd: The descriptor of the job secret, for what tells other nodes.
    """

    def __init__(self, secret_fd: int) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "RANKWISE_SECRET_FILE"}
        program = str(Path(__file__).with_name("guard.py"))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                bufsize=0,
                env={**environment, "RANKWISE_SECRET_FD": str(secret_fd)},
                pass_fds=(secret_fd,),
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(ExitCode.CANNOT_START, f"cannot start a process: {error}") from error

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._tell(".\n")
        self._process.stdin.close()
        self._process.wait()

    def add(self, group: int) -> None:
        """Watch over a process group."""
        self._tell(f"+{group}\n")

    def discard(self, group: int) -> None:
        """Forget a process group that has ended."""
        self._tell(f"-{group}\n")

    def end_with(self, command: Sequence[str]) -> None:
        """Have a command follow if the launcher is killed, once its process groups are."""
        self._tell(f"!{json.dumps(command)}\n")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        # If somebody has killed the guard, the job is none the worse for it.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode())
