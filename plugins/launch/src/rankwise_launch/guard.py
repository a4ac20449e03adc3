"""Kill what a launcher leaves behind when it is killed itself. Run as a program; imports nothing of ours.

The launcher writes `+GROUP` to this process's standard input for each process group that it starts, and `-GROUP`
when that has ended. When the launcher is gone, however it went, the input ends: what is left is killed. A parent-death
signal would reach the ranks but none of the processes that they have started.

Signals that are the launcher's or the ranks' do nothing here: a scheduler may send them to every process of a job.

After `!["WORD", ...]` it ends with that command, which tells other nodes; after `.` the launcher comes to its end by
itself, and tells them.
"""

from __future__ import annotations

import os
import signal
import sys

#: What ends jobs, and what is for ranks; as in `interrupts`.
NOT_OURS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")


def main() -> None:
    """Note the groups until the input ends, then kill those that are left, and have that told."""
    for name in NOT_OURS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    groups: set[int] = set()
    command: list[str] = []
    for line in sys.stdin.buffer:
        sign, rest = line[:1], line[1:]
        if sign == b"+":
            groups.add(int(rest))
        elif sign == b"-":
            groups.discard(int(rest))
        else:
            command = _words(rest)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    if command:
        os.execv(command[0], command)


def _words(line: bytes) -> list[str]:
    import json  # which most launchers have no need of

    return [str(word) for word in json.loads(line or b"[]")] if line.strip() else []


if __name__ == "__main__":
    main()
