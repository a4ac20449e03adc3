"""Kill what a launcher leaves behind when it is killed itself. Run as a program; imports nothing of ours.

The launcher writes `+GROUP` to this process's standard input for each process group that it starts, and `-GROUP`
when that has ended. When the launcher is gone, however it went, the input ends: what is left is killed. A parent-death
signal would reach the ranks but none of the processes that they have started.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Note the groups until the input ends, then kill those that are left."""
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        sign, group = line[:1], int(line[1:])
        if sign == b"+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


if __name__ == "__main__":
    main()
