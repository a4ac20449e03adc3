"""The ranks' output: whole lines, prefixed with the rank, on the console and in log files."""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import IO, BinaryIO

from rankwise.launch.config import STDOUT

__all__ = ["Console", "LineStream", "use_colour"]

#: A line without an end is cut here, so that it cannot fill the memory.
_LONGEST_LINE_NBYTES = 1 << 20
_KEPT_LINES = 400
_COLOURS = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91)


def use_colour(stream: IO[str]) -> bool:
    """Tell whether to write colours to a stream: only to a terminal, and never with `NO_COLOR`."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


class Console:
    """The launcher's own stdout and stderr, which the ranks share line by line."""

    def __init__(self, world_size: int) -> None:
        self._width = len(str(world_size - 1))
        self._sinks = {True: sys.stdout, False: sys.stderr}
        self._coloured = {is_stdout: use_colour(sink) for is_stdout, sink in self._sinks.items()}

    def rank_line(self, rank: int, stream: int, line: bytes) -> None:
        """Show one line of a rank, which ends with a newline."""
        is_stdout = stream == STDOUT
        sink = self._sinks[is_stdout]
        binary: BinaryIO | None = getattr(sink, "buffer", None)
        prefix = self._prefix(rank, self._coloured[is_stdout])
        if binary is None:
            sink.write(prefix + line.decode("utf-8", "replace"))
        else:
            binary.write(prefix.encode() + line)
        sink.flush()

    def say(self, text: str) -> None:
        """Show a message of the launcher itself, on stderr."""
        self._sinks[False].write(text.rstrip("\n") + "\n")
        self._sinks[False].flush()

    def _prefix(self, rank: int, coloured: bool) -> str:
        text = f"[{rank:>{self._width}}]:"
        return f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{text}\x1b[0m " if coloured else text + " "


class LineStream:
    """One stream of one rank: takes bytes as they come, and passes whole lines on."""

    def __init__(self, rank: int, stream: int, console: Console | None, log: BinaryIO | None) -> None:
        self._rank, self._stream = rank, stream
        self._console, self._log = console, log
        self._begun = b""
        #: The last lines, for the report of a failure.
        self.tail: deque[bytes] = deque(maxlen=_KEPT_LINES)

    def feed(self, data: bytes) -> None:
        """Take some bytes; what follows the last newline waits for its end."""
        if self._log is not None:
            self._log.write(data)
            self._log.flush()
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._pass_on(line)
        if len(self._begun) >= _LONGEST_LINE_NBYTES:
            self._end_line()

    def close(self) -> None:
        """Pass on a last line without a newline, and close the log file."""
        if self._begun:
            self._end_line()
        if self._log is not None:
            self._log.close()

    def _end_line(self) -> None:
        line, self._begun = self._begun, b""
        self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        self.tail.append(line)
        if self._console is not None:
            self._console.rank_line(self._rank, self._stream, line + b"\n")
