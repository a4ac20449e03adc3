"""The ranks' output: whole lines, prefixed with the rank, on the console and in log files."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections import deque
from collections.abc import Iterator

from rankwise.launching import cause
from rankwise_launch.config import STDOUT
from rankwise_launch.parser import columns_of
from rankwise_launch.sink import LogFile, Sink
from rankwise_launch.text import use_colour

#: A line without an end is cut here, so that it cannot fill the memory.
_LONGEST_LINE_NBYTES = 256 << 10
#: What a report of a failure can need: so many lines, of so many bytes each and together.
_KEPT_LINES, _KEPT_LINE_NBYTES, _KEPT_NBYTES = 400, 16 << 10, 256 << 10
#: Messages of the launcher are not wider than this on a terminal.
_WIDEST = 200
_COLOURS = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91)


class Console:
    """The launcher's own stdout and stderr, which the ranks share line by line."""

    def __init__(self, world_size: int) -> None:
        self._width = len(str(world_size - 1))
        self._sinks = {True: Sink(sys.stdout), False: Sink(sys.stderr)}
        self._coloured = {is_stdout: use_colour(sink.stream) for is_stdout, sink in self._sinks.items()}

    @property
    def full(self) -> bool:
        """Whether so much has not been read that no more should come."""
        return any(sink.full for sink in self._sinks.values())

    def unwritten(self) -> set[int]:
        """Return the descriptors that have something left to write."""
        return {sink.descriptor for sink in self._sinks.values() if sink.waiting}

    def drain(self) -> None:
        """Write as much of what is left as there is room for now."""
        for is_stdout in self._sinks:
            self._write(is_stdout, b"")

    def finish(self, patience_s: float | None = None) -> None:
        """Wait until all is written, or the reader has taken nothing for so long."""
        for sink in self._sinks.values():
            sink.finish(patience_s)

    def forget(self) -> None:
        """Give up what nobody has read."""
        for sink in self._sinks.values():
            sink.forget()

    def resize(self, world_size: int) -> None:
        """Expect the lines of so many ranks."""
        self._width = len(str(world_size - 1))

    def rank_line(self, rank: int, stream: int, line: bytes) -> None:
        """Show one line of a rank, which ends with a newline."""
        is_stdout = stream == STDOUT
        prefix = self._prefix(rank, self._coloured[is_stdout])
        self._write(is_stdout, prefix.encode() + line)

    def say(self, text: str) -> None:
        """Show a message of the launcher itself, on stderr; its lines are broken where the terminal ends."""
        stream = self._sinks[False].stream
        if stream is not None and stream.isatty():
            width = columns_of(stream, _WIDEST)
            text = "\n".join(part for line in text.split("\n") for part in _broken(line, width))
        self._write(False, text.rstrip("\n").encode(errors="replace") + b"\n")

    def _write(self, is_stdout: bool, data: bytes) -> None:
        """Write to a sink, or, where that is a file on a full disk, go on without it."""
        sink = self._sinks[is_stdout]
        try:
            if data:
                sink.write(data)
            else:
                sink.drain()
        except BrokenPipeError:  # the reader of the output is gone: that ends the job
            raise
        except OSError as error:
            sink.give_up()
            if is_stdout:
                self.say(f"rankwise: cannot write to standard output: {cause(error)}; the ranks go on without it")

    def _prefix(self, rank: int, coloured: bool) -> str:
        text = f"[{rank:>{self._width}}]:"
        return f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{text}\x1b[0m " if coloured else text + " "


def _broken(line: str, width: int) -> list[str]:
    """Break a line of words; a program's places and source stay as they are."""
    if len(line) <= width or line.startswith(("    ", "  File ")):
        return [line]
    if not line.strip("=- "):  # a rule
        return [line[:width]]
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


class Tail:
    """The last lines of a stream, not more of them than a report of a failure needs."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._nbytes = 0

    def append(self, line: bytes) -> None:
        """Add a line; of a very long one only the beginning."""
        line = line[:_KEPT_LINE_NBYTES]
        self._lines.append(line)
        self._nbytes += len(line)
        while self._nbytes > _KEPT_NBYTES or len(self._lines) > _KEPT_LINES:
            self._nbytes -= len(self._lines.popleft())

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._lines)


class LineStream:
    """One stream of one rank: takes bytes as they come, and passes whole lines on.

    Args:
        rank: The rank.
        stream: Which of its streams.
        console: Where its lines are shown, or would be if there were no log.
        shown: Whether they are shown while the log takes them.
        log: The file that takes all of it too.
    """

    def __init__(self, rank: int, stream: int, console: Console, shown: bool, log: LogFile | None) -> None:
        self._rank, self._stream = rank, stream
        self._console, self._shown, self._log = console, shown, log
        #: The pieces of a line that has no end so far.
        self._begun: list[bytes] = []
        self._begun_nbytes = 0
        #: The last lines, for the report of a failure.
        self.tail = Tail()
        self._fold: Fold | None = None

    def feed(self, data: bytes) -> None:
        """Take some bytes; what follows the last newline waits for its end."""
        if self._log is not None:
            self._log.write(data)
        first, *others = data.split(b"\n")
        self._begin(first)
        for line in others:
            self._end_line()
            self._begin(line)

    def fold(self) -> None:
        """Show from now on a line in place of each traceback of an interrupt."""
        self._fold = self._fold or Fold()

    def close(self) -> None:
        """Pass on a last line without a newline, and close the log file."""
        if self._begun_nbytes:
            self._end_line()
        if self._fold is not None:
            self._show(self._fold.rest())
        if self._log is not None:
            self._log.close()

    def _begin(self, data: bytes) -> None:
        while self._begun_nbytes + len(data) >= _LONGEST_LINE_NBYTES:
            room = _LONGEST_LINE_NBYTES - self._begun_nbytes
            self._begun.append(data[:room])
            self._end_line()
            data = data[room:]
        if data:
            self._begun.append(data)
            self._begun_nbytes += len(data)

    def _end_line(self) -> None:
        line = b"".join(self._begun)
        self._begun, self._begun_nbytes = [], 0
        self.tail.append(line)
        self._show([line] if self._fold is None else self._fold.take(line))

    def _show(self, lines: list[bytes]) -> None:
        if self._shown or (self._log is not None and not self._log.works):
            for line in lines:
                self._console.rank_line(self._rank, self._stream, line + b"\n")


# ------------------ what a rank says when Ctrl-C ends it: one line instead of a traceback, as the others say the same

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
