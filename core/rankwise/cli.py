"""The command `rankwise`: `rankwise-launch` brings what runs commands, and other distributions the commands."""

from __future__ import annotations

import sys
from typing import NamedTuple

__all__ = ["COMMANDS", "NOT_INSTALLED", "Command", "main"]

#: The exit code where a command, or the backend that it needs, is not installed or cannot run here.
NOT_INSTALLED = 69


class Command(NamedTuple):
    """A command of this project: its line in the overview, and the distribution that brings it."""

    help: str
    distribution: str


#: All of them.
COMMANDS = {
    "run": Command("start the ranks of a job", "rankwise-launch"),
    "demo": Command("train a small network on several processes while you watch", "rankwise-launch"),
    "backends": Command("show which backends are installed, and what each can do", "rankwise-launch"),
    "doctor": Command("diagnose this installation", "rankwise-launch"),
    "conformance": Command("test that a backend does what it declares", "rankwise-testing"),
    "new-backend": Command("write a working backend to start from", "rankwise-testing"),
    "bench": Command("measure latency and bandwidth", "rankwise-tools"),
    "explain": Command("show which algorithm runs for a size and a number of ranks, and why", "rankwise-tools"),
    "top": Command("show what the ranks of a running job do, and which rank the others wait for", "rankwise-tools"),
    "trace": Command("draw one timeline of all ranks, and name a rank that made a different call", "rankwise-tools"),
    "secret": Command("make a job secret", "rankwise-launch"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command line, and return the exit code."""
    from rankwise.basics.entry_points import part
    from rankwise.basics.systems import keep_standard
    from rankwise.errors import PluginError

    keep_standard()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # it was closed when the process began
            # opens: nothing, it is a standard stream once more
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115

    given = sys.argv[1:] if arguments is None else arguments
    try:
        execute = part("command_line", "rankwise-launch")
    except PluginError as error:
        return _without_launch(given, error)
    return int(execute(given))


def _without_launch(arguments: list[str], why: Exception) -> int:
    """Tell the version, or say what to install."""
    from rankwise.basics.version import __version__

    if "--version" in arguments:
        print(f"rankwise {__version__}")
        return 0
    name = next((word for word in arguments if not word.startswith("-")), "")
    known = COMMANDS.get(name)
    text = f"it is not installed: pip install {known.distribution}" if known else why
    print(f"{f'rankwise {name}'.strip()}: {text}", file=sys.stderr)
    return NOT_INSTALLED
