"""Run a command on a terminal of a given width, and see what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

_LINES = 24


def run_on_terminal(
    command: Sequence[str], columns: int, cwd: Path, env: Mapping[str, str], timeout_s: float
) -> tuple[int, str]:
    """Return the exit code of a command, and all that it has written, with the codes that move a terminal's cursor.

    Args:
        command: The command and its arguments.
        columns: How wide the terminal is.
        cwd: Where the command runs.
        env: Its environment, of which the width is left out: the terminal tells.
        timeout_s: How long the command may take to end once it has closed the terminal.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, columns, 0, 0))
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")},
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
    ) as process:
        os.close(follower)
        data = b""
        with contextlib.suppress(OSError):  # how the system tells that the last writer is gone
            while more := os.read(leader, 1 << 16):
                data += more
        os.close(leader)
        code = process.wait(timeout_s)
    return code, data.decode().replace("\r\n", "\n")
