"""What a rank says when Ctrl-C ends it: one line instead of a traceback, as the others say the same."""

from __future__ import annotations

import os
import re

__all__ = ["Fold"]

_BEGIN = b"Traceback (most recent call last):"
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")
#: How a rank ends that is interrupted, or misses one that was.
_END = re.compile(rb"(?:rankwise\.errors\.(\w+)|(KeyboardInterrupt))\b")
_PLACE = re.compile(rb'  File "(.+)", line (\d+)')
#: Frames of these are between the program's line and the interrupt.
_INNER = re.compile(rb"/rankwise(_\w+)?/|^" + re.escape(os.fsencode(os.path.dirname(os.__file__))) + rb"/(?!site-)")


class Fold:
    """Takes the lines of a rank's standard error one by one, and gives those that are worth to be shown."""

    def __init__(self) -> None:
        #: The lines of a traceback so far, with those that it is chained to.
        self._held: list[bytes] = []
        #: Whether its last line has come; others may yet follow that chain it to another.
        self._is_whole = False

    def take(self, line: bytes) -> list[bytes]:
        """Take a line; return what can be shown by now."""
        if self._is_whole and line and not line.startswith((*_CHAINED, _BEGIN)):
            return [*self.rest(), *self.take(line)]
        if not self._held and not line.startswith(_BEGIN):
            return [line]
        self._held.append(line)
        is_within = line.startswith((b" ", _BEGIN, *_CHAINED))
        self._is_whole = not is_within and (self._is_whole or bool(line))
        return []

    def rest(self) -> list[bytes]:
        """Return what to show of the lines that were held back."""
        held, self._held = self._held, []
        is_whole, self._is_whole = self._is_whole, False
        last = next((line for line in reversed(held) if line), b"")
        end = _END.match(last)
        return [_in_a_line(held, end[1] or end[2])] if is_whole and end else held


def _in_a_line(lines: list[bytes], error: bytes) -> bytes:
    """Return what a traceback comes to: the error's name and the program's own line."""
    places = [(number, found) for number, line in enumerate(lines) if (found := _PLACE.match(line))]
    own = [place for place in places if not _INNER.search(place[1][1])] or places
    if not own:
        return lines[-1]
    number, found = own[-1]
    source = b"" if lines[number + 1].startswith(b"  File") else b": " + lines[number + 1].strip()
    return b"%s at %s:%s%s" % (error, os.path.basename(found[1]), found[2], source)
