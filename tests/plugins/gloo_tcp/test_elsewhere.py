"""The backend on a system that lacks what only Linux has: sockets are enough."""

from __future__ import annotations

import fcntl
import os
import platform
import select
import socket
import subprocess
import sys
from pathlib import Path

from tests.by_reference import command, returned

PATIENCE_S = 60.0

#: What only Linux has.
LACKING = {
    os: ("eventfd", "memfd_create", "pidfd_open", "pipe2", "sched_getaffinity"),
    select: ("epoll",),
    socket: ("SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED"),
    fcntl: ("F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_SEAL", "F_SEAL_SHRINK", "F_SEAL_GROW"),
}


def without_linux() -> str:
    """Be a rank on another system, as far as rankwise can see, which is loaded only then."""
    assert "rankwise" not in sys.modules
    for module, names in LACKING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    platform.system = lambda: "Darwin"
    import programs

    return str(programs.of_all_kinds())


def test_sockets_are_enough(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            command(without_linux),
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
            assert (rank.returncode, out and returned(out)) == (0, "right"), err[-3000:]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
