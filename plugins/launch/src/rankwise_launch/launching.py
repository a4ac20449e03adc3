"""How commands start ranks of their own programs, over whichever backend."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rankwise.cli import NOT_INSTALLED
from rankwise.launching import KNOWN, registry
from rankwise_launch.commands import CommandError
from rankwise_launch.interrupts import ENDING, FOR_RANKS, heeded
from rankwise_launch.processes import MOST_PROCESSES, die_with_parent, too_many

#: After Ctrl-C, which a launcher has got too if it came from the terminal, it may take so long to end by itself.
_GRACE_S = 1.0


def pick_backend(name: str | None) -> str:
    """Return the backend to use: the one that was named, or the first that can run here.

    Raises:
        CommandError: It cannot run here, or none can.
        BackendNotFoundError: There is none of that name.
    """
    if name is not None:
        registry.get(name)
        answer = registry.availability(name)
        if not answer:
            raise CommandError(
                f"backend {name!r} cannot run here: {answer.reason}; {answer.remedy}".rstrip("; "), NOT_INSTALLED
            )
        return name
    for candidate in sorted({*KNOWN, *registry.names()}, key=lambda name: (name not in KNOWN, name)):
        if registry.availability(candidate):
            return candidate
    reasons = "; ".join(f"{name}: {registry.availability(name).reason}" for name in registry.names())
    because = reasons or "none is installed"
    raise CommandError(f"no installed backend can run here ({because}); pip install {KNOWN['gloo']}", NOT_INSTALLED)


def command_for(
    backend: str, nprocs: int, module: str, *arguments: str, launch: tuple[str, ...] | None = None
) -> list[str]:
    """Return the command that starts a module on some ranks: with our launcher, or that of the backend's runtime.

    `launch` is the backend's, where it is known already.

    Raises:
        CommandError: The runtime's launcher is not there, or none could start such ranks.
    """
    program = [sys.executable, "-m", module, *arguments]
    if nprocs > MOST_PROCESSES:
        raise CommandError(too_many("processes", nprocs), 2)
    launcher = launcher_of(backend, nprocs, launch)
    return [*(launcher or [sys.executable, "-m", "rankwise", "run", "-n", str(nprocs)]), *program[not launcher :]]


def launcher_of(backend: str, nprocs: int, launch: tuple[str, ...] | None = None) -> list[str]:
    """Return the launcher of the backend's runtime and its options, nothing where it is ours.

    Raises:
        CommandError: It is not there, or none could start such ranks.
    """
    launch = registry.get(backend).launch if launch is None else launch
    if launch == ("threads",):
        raise CommandError(f"the ranks of backend {backend!r} are threads of one process, which no launcher starts")
    found = find_program(launch[0]) if launch else ""
    if found is None:
        raise CommandError(f"backend {backend!r} starts its ranks with {launch[0]}, which is not on the path")
    return [found, *(word.format(size=nprocs) for word in launch[1:])] if found else []


def find_program(name: str) -> str | None:
    """Find a launcher: beside this Python before anywhere else, as the two belong together."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


@contextmanager
def child(command: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a launcher that does not outlive this process, however that ends; on the way out it is stopped."""
    process = subprocess.Popen(command, env=environment(), text=True, preexec_fn=die_with_parent(), **settings)
    try:
        yield process
    except KeyboardInterrupt:
        # It is stopping its ranks; a second signal would kill them.
        _wait(process)
        raise
    finally:
        if process.poll() is None:
            process.terminate()
            _wait(process)
            process.kill()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()


def said_last(text: str) -> str:
    """Return the last line of a launcher's errors that is not just a rule, without the rank in front of it."""
    lines = [line for line in text.splitlines() if line.strip("=- ")]
    return lines[-1].rpartition("]: ")[2].strip() if lines else "it has not said why"


def _wait(process: subprocess.Popen[str]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)


def environment() -> dict[str, str]:
    """Return an environment in which the launchers of MPI start more ranks than there are cores, and for root too.

    Each rank has one thread for its own work, as `rankwise run` has it.
    """
    more = {
        "OMP_NUM_THREADS": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        more |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**more, **os.environ}


# Another library's launcher, run in this process's name: it gets the signals, and the exit code tells of them

#: What `siginfo` says of a signal that the kernel has sent, as for Ctrl-C: to all processes of the terminal.
_SI_KERNEL = 0x80


def run_launcher(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end; return its exit code, or 128 and the number of the signal that has ended it or us."""
    awaited = {*heeded((*ENDING, *FOR_RANKS)), signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    received = None
    try:
        begin = partial(_begin, before, die_with_parent())
        process = subprocess.Popen(command, env=environment, preexec_fn=begin)
        while process.poll() is None:
            number, is_for_all = _next_signal(awaited)
            if number in ENDING:
                received = received or number
            if number != signal.SIGCHLD and not is_for_all:
                process.send_signal(number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if received is not None:
        return 128 + received
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _next_signal(awaited: Collection[int]) -> tuple[int, bool]:
    """Wait for a signal; return it, and whether the launcher gets it too."""
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
