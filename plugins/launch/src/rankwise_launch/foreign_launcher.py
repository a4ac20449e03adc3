"""Another library's launcher, run in this process's name: it gets the signals, and the exit code tells of them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rankwise.basics.systems import die_with_parent, signals

__all__ = ["run_launcher"]

_SIGNALS = set(signals("SIGINT", "SIGTERM", "SIGHUP"))
#: What `siginfo` says of a signal that the kernel has sent, as for Ctrl-C: to all processes of the terminal.
_SI_KERNEL = 0x80


def run_launcher(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end; return its exit code, or 128 and the number of the signal that has ended it or us."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_SIGNALS, signal.SIGCHLD})
    received = None
    try:
        begin = partial(_begin, before, die_with_parent())
        process = subprocess.Popen(command, env=environment, preexec_fn=begin)
        while process.poll() is None:
            number, is_for_all = _next_signal()
            if number != signal.SIGCHLD:
                received = received or number
                if not is_for_all:
                    process.send_signal(number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if received is not None:
        return 128 + received
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _next_signal() -> tuple[int, bool]:
    """Wait for a signal; return it, and whether the launcher gets it too."""
    awaited = {*_SIGNALS, signal.SIGCHLD}
    if not hasattr(signal, "sigwaitinfo"):  # macOS, which does not tell who has sent it
        number = signal.sigwait(awaited)
        return number, number == signal.SIGINT
    info = signal.sigwaitinfo(awaited)
    return info.si_signo, info.si_code == _SI_KERNEL


def _begin(mask: set[signal.Signals | int], follow: Callable[[], None] | None) -> None:
    """Take signals as usual, and end when the parent has."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if follow is not None:
        follow()
