"""Where all threads are. By faulthandler, which takes all stacks at one moment: to follow another thread's frames in
Python, while it goes on between two steps, has crashed interpreters."""

from __future__ import annotations

import os
import re
import time
from typing import IO, NamedTuple

#: This folder, whose own frames are of no interest.
_WATCH = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: How faulthandler writes them. `re` compiles these when a stack is first read: most programs never ask for one.
_HEAD = r"(?:Current thread|Thread) 0x([0-9a-f]+)"
_FRAME = r'  File "(.*)", line (\d+|\?\?\?) in (.*)'
#: Where it comes upon a thread that is ending, Python 3.14 writes this, and nothing of the threads after it.
_FREED = "<freed thread state>"
_MOST_TRIES = 20
_PAUSE_S = 0.001


class SourceLine(NamedTuple):
    """One frame of a stack."""

    file: str
    line: int
    function: str


def stacks() -> dict[int, list[SourceLine]]:
    """Return for each thread its stack, the innermost frame first."""
    text = _dumped()
    for _ in range(_MOST_TRIES):
        if _FREED not in text:
            break
        time.sleep(_PAUSE_S)  # it ends when it gets the interpreter's lock
        text = _dumped()
    found: dict[int, list[SourceLine]] = {}
    places: list[SourceLine] = []
    for line in text.splitlines():
        if head := re.match(_HEAD, line):
            places = found[int(head[1], 16)] = []
        elif (frame := re.match(_FRAME, line)) and not frame[1].startswith(_WATCH):
            places.append(SourceLine(frame[1], int(frame[2]) if frame[2].isdigit() else 0, frame[3]))
    return found


def _dumped() -> str:
    """Return what faulthandler writes of all threads."""
    # Only now: where all goes well, nobody asks where the threads are.
    import faulthandler

    with _file() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode("utf-8", "replace")


def _file() -> IO[bytes]:
    """Return a file that nobody else sees, in memory where the system has such."""
    # opens: the stacks of a process, while its threads are asked for them
    # reached by: processes of this user, and root, through /proc
    # guarded by: no name; gone once it is read
    # proved by: tests/plugins/watch/test_recorder.py
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("rankwise-stacks", os.MFD_CLOEXEC), "r+b", buffering=0)
    import tempfile

    return tempfile.TemporaryFile()
