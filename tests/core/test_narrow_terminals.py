"""What rankwise itself says fits a terminal of 60 columns."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

COLUMNS = 60
WRONG = """\
import numpy as np
import rankwise as dist

dist.init_process_group("gloo")
dist.all_reduce(np.ones(4 if dist.get_rank() == 1 else 3))
"""


def shown(folder, *arguments):
    """Return the lines that a command shows on a narrow terminal."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RANKWISE_", "COLUMNS"))}
    with subprocess.Popen(
        [sys.executable, "-m", "rankwise", *arguments],
        cwd=folder,
        env={**kept, "NO_COLOR": "1"},
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
        process.wait(60)
    return data.decode().replace("\r", "").split("\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "--backend", "one-that-is-not-installed-anywhere"],
        ["explain", "all_reduce", "--ranks", "2", "--hosts", "3", "--gbit-per-s", "-5"],
        ["run", "--no-python", "a-program-with-a-name-that-is-nowhere-on-the-path"],
        ["run", "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", "65535", "x.py"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_errors_of_commands_are_broken_into_lines(arguments, tmp_path):
    lines = shown(tmp_path, *arguments)
    assert lines[0].startswith("rankwise")
    assert all(len(line) <= COLUMNS for line in lines), lines


def test_the_report_of_a_failure_is_broken_into_lines(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    lines = shown(tmp_path, "run", "-n", "2", "wrong.py")
    report = lines[lines.index("=" * COLUMNS) :]
    assert "failed first" in report[1]
    source = ("  File ", "    ")
    assert all(len(line) <= COLUMNS for line in report if not line.startswith(source)), report
    assert any("CollectiveMismatchError" in line for line in report)
