"""The backend on a system that lacks what only Linux has: sockets are enough."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PATIENCE_S = 60.0

HERE = Path(__file__).parent

PROGRAM = """
import fcntl, os, platform, select, socket, sys

for module, names in {
    os: ("eventfd", "memfd_create", "pidfd_open", "pipe2", "sched_getaffinity"),
    select: ("epoll",),
    socket: ("SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED"),
    fcntl: ("F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_SEAL", "F_SEAL_SHRINK", "F_SEAL_GROW"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
platform.system = lambda: "Darwin"

import programs

print(programs.of_all_kinds())
"""


def test_sockets_are_enough(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=HERE,
            env={"RANK": str(rank), "WORLD_SIZE": "3", "MEET_AT": f"file://{tmp_path}/store"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        for rank in ranks:
            out, err = rank.communicate(timeout=PATIENCE_S)
            assert (rank.returncode, out) == (0, "right\n"), err[-3000:]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
