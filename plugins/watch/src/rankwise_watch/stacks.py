"""Where all threads are. By faulthandler, which takes all stacks at one moment: to follow another thread's frames in
Python, while it goes on between two steps, has crashed interpreters."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

__all__ = ["Place", "stacks"]

#: This folder, whose own frames are of no interest.
_WATCH = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: How faulthandler writes them. `re` compiles these when a stack is first read: most programs never ask for one.
_HEAD = r"(?:Current thread|Thread) 0x([0-9a-f]+)"
_FRAME = r'  File "(.*)", line (\d+|\?\?\?) in (.*)'


class Place(NamedTuple):
    """One frame of a stack."""

    file: str
    line: int
    function: str


def stacks() -> dict[int, list[Place]]:
    """Return for each thread its stack, the innermost frame first."""
    # Only now: where all goes well, nobody asks where the threads are.
    import faulthandler
    import tempfile

    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read().decode("utf-8", "replace")
    found: dict[int, list[Place]] = {}
    places: list[Place] = []
    for line in text.splitlines():
        if head := re.match(_HEAD, line):
            places = found[int(head[1], 16)] = []
        elif (frame := re.match(_FRAME, line)) and not frame[1].startswith(_WATCH):
            places.append(Place(frame[1], int(frame[2]) if frame[2].isdigit() else 0, frame[3]))
    return found
