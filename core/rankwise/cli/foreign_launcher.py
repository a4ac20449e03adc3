"""Another library's launcher, run in this process's name: it gets the signals, and the exit code tells of them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial

__all__ = ["run_launcher"]

_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
#: What `siginfo` says of a signal that the kernel has sent, as for Ctrl-C: to all processes of the terminal.
_SI_KERNEL = 0x80
_PR_SET_PDEATHSIG = 1


def run_launcher(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end; return its exit code, or 128 and the number of the signal that has ended it or us."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_SIGNALS, signal.SIGCHLD})
    received = None
    try:
        begin = partial(_begin, ctypes.CDLL(None), os.getpid(), before)
        process = subprocess.Popen(command, env=environment, preexec_fn=begin)
        while process.poll() is None:
            info = signal.sigwaitinfo({*_SIGNALS, signal.SIGCHLD})
            if info.si_signo != signal.SIGCHLD:
                received = received or info.si_signo
                if info.si_code != _SI_KERNEL:
                    process.send_signal(info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if received is not None:
        return 128 + received
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _begin(libc: ctypes.CDLL, parent: int, mask: set[signal.Signals | int]) -> None:
    """Take signals as usual, and end when the parent has."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
