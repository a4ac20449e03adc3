"""The command `rankwise`: one sub-command a file, each imported only when it is asked for."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run a command line, and return the exit code."""
    from rankwise.basics.systems import keep_standard
    from rankwise.cli.commands import execute

    keep_standard()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # it was closed when the process began
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115

    return execute(sys.argv[1:] if arguments is None else arguments)
