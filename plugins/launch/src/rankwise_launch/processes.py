"""What it takes to start ranks as processes: whether they can be, how they end with their parent, what they inherit."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from functools import partial

from rankwise.errors import DistError
from rankwise_network.secret import to_hand_down

#: More processes on a machine, or nodes of a job, are a typing mistake: they would end it before they have begun.
MOST_PROCESSES = 1 << 16
_PR_SET_PDEATHSIG = 1


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def too_many(what: str, count: int) -> str:
    """Say that there are more of them than there can be."""
    return f"at most {MOST_PROCESSES} {what} can be started, not {count}"


def require_processes() -> None:
    """Raise where ranks cannot be processes: no backend connects them on Windows, and a removed folder starts none."""
    if not hasattr(os, "killpg"):
        text = "ranks are processes on Linux and macOS alone; rankwise_local.local_world runs them as threads"
        raise DistError(text)
    require_folder()


def require_folder() -> None:
    """Raise where the working directory has been removed: Python starts no process there that finds its modules."""
    try:
        os.getcwd()
    except FileNotFoundError:
        text = "the folder in which this was started has been removed; change to one that is there"
        raise DistError(text) from None


def die_with_parent(number: int = signal.SIGTERM, parent: int = 0) -> Callable[[], None] | None:
    """Return what a new process calls to get a signal when its parent has ended; None where the kernel sends none.

    Args:
        number: The signal.
        parent: The parent, if it is not this process.
    """
    import ctypes  # which most programs do without

    try:
        prctl = ctypes.CDLL(None).prctl
    except (AttributeError, OSError, TypeError):  # Linux alone has it; Windows knows no library without a name
        return None
    return partial(_follow, prctl, parent or os.getpid(), number)


def _follow(prctl: Callable[[int, int], int], parent: int, number: int) -> None:
    prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it was quicker
        os._exit(1)


def hand_down(secret: bytes) -> int:
    """Return a descriptor for child processes to inherit as `RANKWISE_SECRET_FD`; it can be read any number of times.

    The caller lets the children inherit it (`pass_fds` of `subprocess.Popen`), and closes it.
    """
    # opens: the job secret, on its way to the ranks
    # reached by: the ranks and their guard, which inherit it; processes of this user, and root, through /proc
    # guarded by: no name; in no command line and no environment
    # proved by: tests/security/test_exposure.py
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rankwise-secret")
    else:
        with tempfile.TemporaryFile() as file:  # which has no name, and is gone with its last descriptor
            descriptor = os.dup(file.fileno())
    os.write(descriptor, to_hand_down(secret))
    return descriptor
