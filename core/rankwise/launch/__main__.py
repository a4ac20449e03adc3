"""`python -m rankwise.launch`: the door to the older command line, which comes with `rankwise run`."""

from __future__ import annotations

import sys

from rankwise.cli.commands import NO_BACKEND, CommandNotInstalledError, load

__all__ = ["main"]


def main() -> int:
    """Run the older command line, and return the exit code."""
    try:
        module = load("run")
    except (CommandNotInstalledError, RuntimeError) as error:
        print(f"python -m rankwise.launch: {error}", file=sys.stderr)
        return NO_BACKEND
    assert module is not None
    return int(module.older())


if __name__ == "__main__":
    sys.exit(main())
