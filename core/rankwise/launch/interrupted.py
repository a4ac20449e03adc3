"""What a rank says when Ctrl-C ends it: one line instead of a traceback, as the others say the same."""

from __future__ import annotations

import os
import re

__all__ = ["Fold"]

_BEGIN = b"Traceback (most recent call last):"
#: How a rank ends that is interrupted, or misses one that was.
_END = re.compile(rb"(?:[\w.]+\.)?(KeyboardInterrupt|PeerDiedError|GroupAbortedError)\b")
_PLACE = re.compile(rb'  File "(.+)", line (\d+)')
#: Frames of these are between the program's line and the interrupt.
_INNER = re.compile(rb"/rankwise(_\w+)?/|^" + re.escape(os.fsencode(os.path.dirname(os.__file__))) + rb"/(?!site-)")


class Fold:
    """Takes the lines of a rank's standard error one by one, and gives those that are worth to be shown."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def take(self, line: bytes) -> list[bytes]:
        """Take a line; return what can be shown by now."""
        if not self._held and not line.startswith(_BEGIN):
            return [line]
        self._held.append(line)
        if line.startswith((b" ", _BEGIN)) or not line:
            return []
        lines = self.rest()
        end = _END.match(line)
        return [_in_a_line(lines, end[1])] if end else lines

    def rest(self) -> list[bytes]:
        """Return the lines that were held back, of a traceback that has no end."""
        held, self._held = self._held, []
        return held


def _in_a_line(lines: list[bytes], error: bytes) -> bytes:
    """Return what a traceback comes to: the error's name and the program's own line."""
    places = [(number, found) for number, line in enumerate(lines) if (found := _PLACE.match(line))]
    own = [place for place in places if not _INNER.search(place[1][1])] or places
    if not own:
        return lines[-1]
    number, found = own[-1]
    source = b"" if lines[number + 1].startswith(b"  File") else b": " + lines[number + 1].strip()
    return b"%s at %s:%s%s" % (error, os.path.basename(found[1]), found[2], source)
