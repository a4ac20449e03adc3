"""The command `rankwise`: one sub-command a file, each imported only when it is asked for."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run a command line, and return the exit code."""
    from rankwise.cli.commands import execute

    return execute(sys.argv[1:] if arguments is None else arguments)
