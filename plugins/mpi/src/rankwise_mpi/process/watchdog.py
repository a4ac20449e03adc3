"""Ends a process that hangs in a call of C for too long, and says why.

MPI_Init_thread waits without limit for ranks that never initialise, and mpi4py holds the interpreter meanwhile: no
thread and no signal handler of Python's gets a turn. So a child process looks at the clock. It ends with the call, or
with its parent, whichever comes first.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import warnings
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def ended_after(timeout_s: float, reason: str) -> Iterator[None]:
    """Print the reason and kill this process unless the block has ended within the time-out."""
    parent = os.getpid()
    watched, held = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that threads may be running: the child calls the system and nothing else
        child = os.fork()
    if child == 0:
        _watch(watched, parent, timeout_s, f"{reason}\n".encode())
    os.close(watched)
    try:
        yield
    finally:
        os.close(held)
        os.waitpid(child, 0)


def _watch(watched: int, parent: int, timeout_s: float, reason: bytes) -> NoReturn:
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # they are the parent's business
        # Whatever else the parent has open, such as its line to the launcher, must close when the parent does.
        os.dup2(watched, 0)
        os.close(1)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        ended = select.select([0], [], [], timeout_s)[0]
        if not ended and os.getppid() == parent:
            os.write(2, reason)
            os.kill(parent, signal.SIGKILL)
    finally:
        os._exit(0)
